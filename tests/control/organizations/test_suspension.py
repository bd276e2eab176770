"""Suspending asks for a reason, says what follows, and tells the owners by email."""

import dataclasses
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.utils import timezone

from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue
from control.organizations.services import (
    resume_organization,
    suspend_organization,
    suspension_effects,
    why_suspended,
)
from control.permissions import Role
from tests.fixtures.mails import delivered, html_of
from tests.fixtures.operator_tokens import bearer_client, make_operator, make_token
from tests.fixtures.organizations import OPERATOR, SeededOrganization

REASON = "Card testing from your keys"
SUPPORT = "support@penstock.example"


@pytest.fixture
def told(org: SeededOrganization) -> SeededOrganization:
    """An organization whose owner and admin have verified addresses."""
    for user in (org.owner, org.join(Role.ADMIN)):
        EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    delivered().clear()  # the invitation
    return org


def set_support(settings: Any, contact: str) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, support_email=contact)


def suspend(org: SeededOrganization, reason: str = REASON, **options: Any) -> None:
    suspend_organization(actor=OPERATOR, organization=org.organization, reason=reason, **options)
    org.organization.refresh_from_db()


@pytest.mark.parametrize("contact", [SUPPORT, ""])
def test_owners_are_told_why_and_whom_to_ask(
    told: SeededOrganization, settings: Any, contact: str
) -> None:
    set_support(settings, contact)
    suspend(told)
    [message] = delivered()
    assert message.to == [told.owner.email]
    assert message.subject == "Acme is suspended"
    whom = contact or "the operator of this platform"
    for text in (str(message.body), html_of(message)):
        assert REASON in text
        assert whom in text
        assert f"/{told.id}" in text
    assert why_suspended(told.organization).startswith(f"Reason: {REASON}. If you have questions, ")
    assert whom in why_suspended(told.organization)
    resume_organization(actor=OPERATOR, organization=told.organization)
    told.organization.refresh_from_db()
    assert told.organization.suspended_reason == ""
    assert delivered()[-1].subject == "Acme works again"


def test_who_sends_an_email_of_its_own_is_not_doubled(told: SeededOrganization) -> None:
    suspend(told, is_mailed=False)
    resume_organization(actor=OPERATOR, organization=told.organization, is_mailed=False)
    assert delivered() == []


@pytest.mark.parametrize("reason", ["", "  "])
def test_it_needs_a_reason(told: SeededOrganization, reason: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        suspend(told, reason)
    assert refusal.value.param == "reason"
    assert told.organization.is_active
    suspend(told)
    event = AuditEvent.objects.get(action="organization.suspended")
    assert event.details["reason"] == REASON
    with pytest.raises(Conflict):
        suspend(told)


def test_what_follows_is_counted(told: SeededOrganization) -> None:
    told.mint()
    ended, _ = told.mint()
    type(ended).objects.filter(id=ended.id).update(revoked_at=timezone.now())
    expired, _ = told.mint()
    type(expired).objects.filter(id=expired.id).update(expires_at=timezone.now())
    effects = " ".join(suspension_effects(told.organization))
    assert "1 API key is refused" in effects
    assert "2 members can still sign in" in effects
    assert f"owners: {told.owner.email}." in effects
    EmailAddress.objects.update(verified=False)
    assert "nobody is told by email" in " ".join(suspension_effects(told.organization))


def test_the_api_previews_asks_for_a_reason_and_shows_it(told: SeededOrganization) -> None:
    script = bearer_client(make_token(make_operator())[1])
    address = f"/api/v1/admin/organizations/{told.id}"
    preview = script.get(f"{address}/suspend").json()
    assert preview == {"effects": suspension_effects(told.organization)}
    for body in ({}, {"reason": " "}):
        refused = script.post(f"{address}/suspend", body, content_type="application/json")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "reason")
    body = {"reason": REASON}
    done = script.post(f"{address}/suspend", body, content_type="application/json").json()
    assert (done["status"], done["suspended_reason"]) == ("suspended", REASON)
    back = script.post(f"{address}/resume", {}, content_type="application/json").json()
    assert (back["status"], back["suspended_reason"]) == ("active", "")
