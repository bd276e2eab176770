"""Pages of the overview, billing, a project and a key say what may be spent and what limits it."""

import pytest
from django.test import Client
from django.utils import timezone

from billing.credit.services.payments import record_payment
from control.accounts.models import User
from control.limits.spending import add_limit
from control.organizations.models import Membership
from control.permissions import Role
from tests.fixtures.organizations import OPERATOR
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LIMITED = ("organization", "project", "key")


@pytest.fixture
def pages(org, key):
    """The pages on which a limit shows, the broadest first; there is credit for more."""
    record_payment(
        organization_id=org.id, amount_nanos=5 * 10**9, idempotency_key="pay", actor=OPERATOR,
        reason="Wire", now=timezone.now(),
    )  # fmt: skip
    organization = org.organization
    return {
        "organization": [address(organization, "overview"), address(organization, "billing")],
        "project": [
            address(organization, "overview", project=org.project.id),
            address(organization, "project", org.project.id),
        ],
        "key": [address(organization, "key", key.id)],
    }


def limit(org, owner):
    add_limit(
        actor=OPERATOR, organization=org.organization, owner_id=owner.id, period="day",
        limit_nanos=100_000, is_hard=True, now=timezone.now(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", LIMITED)
def test_each_page_names_the_limit_that_binds(org, member, key, pages, kind):
    words = {
        "organization": "the daily spending limit of the organization Acme Research",
        "project": "the daily spending limit of the project Default",
        "key": "the daily spending limit of the API key Backend",
    }[kind]
    owner = {"organization": org.organization, "project": org.project, "key": key}[kind]
    limit(org, owner)
    for number, limited in enumerate(LIMITED):
        for page in pages[limited]:
            text = member.get(page).content.decode()
            concerns = number >= LIMITED.index(kind)
            assert (words in text) == concerns, page
            assert ("$0.0001" in text) == concerns, page


def test_who_may_not_see_money_sees_no_amount(org, key, pages):
    limit(org, org.organization)
    user = User.objects.create_user("dev@acme.example")
    Membership.objects.create(organization=org.organization, user=user, role=Role.DEVELOPER)
    client = Client()
    client.force_login(user)
    for page in (*pages["project"], *pages["key"]):
        assert "$0.0001" not in client.get(page).content.decode()


@pytest.mark.parametrize("field", ["revoked_at", "expires_at"])
def test_with_a_key_that_is_refused_nothing_can_be_spent(member, key, pages, field):
    type(key).objects.filter(pk=key.pk).update(**{field: timezone.now()})
    assert "Can be spent now" not in member.get(*pages["key"]).content.decode()
