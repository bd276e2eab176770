"""The end of an organization: what it takes with it, what stands in its way, and what stays."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from billing.credit.models import GrantKind
from billing.credit.services.grants import grant_credit
from billing.payments.models import AutoTopUp
from control.api_keys.models import ApiKey, Scope
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.selectors import last_record
from control.organizations import selectors
from control.organizations.deletion import delete_organization, preview_deletion
from control.organizations.members import invite_member
from control.organizations.models import Invitation, Organization
from control.organizations.services import resume_organization, suspend_organization
from control.organizations.signals import DeletionEffect, organization_deletion_previewed
from control.permissions import Role
from control.webhooks.models import WebhookEndpoint, WebhookSecret
from control.webhooks.services import create_endpoint
from tests.fixtures.organizations import OPERATOR, SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def delete(org: SeededOrganization, **changes: Any) -> Organization:
    actor = changes.pop("actor", None) or org.actor
    wish = {"organization": org.organization, "name": "Acme", **changes}
    return delete_organization(actor=actor, **wish)


def test_keys_seats_and_invitations_end_and_the_feed_says_so(
    org: SeededOrganization, key: ApiKey
) -> None:
    org.join(Role.ADMIN)
    invite_member(
        actor=org.actor, organization=org.organization, email="x@example.com", role="viewer"
    )
    said = [each.words for each in preview_deletion(org.organization)]
    assert "All 2 members lose access at once, including you." in said
    assert "1 API key stops working within a second, on every gateway." in said
    assert "1 open invitation is withdrawn." in said
    delete(org)
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert last_record("api_key", key.id) is None
    assert '"archived"' in str(last_record("project", org.project.id))
    assert '"suspended"' in str(last_record("organization", org.id))
    assert not selectors.members(org.organization).exists()
    assert not Invitation.objects.filter(revoked_at=None, accepted_at=None).exists()
    [deed] = AuditEvent.objects.filter(action="organization.deleted")
    assert deed.details["members"] == 2


def test_webhooks_and_automatic_top_ups_end_with_it(org: SeededOrganization) -> None:
    endpoint, _ = create_endpoint(
        actor=org.actor, organization=org.organization,
        url="https://1.1.1.1/hook", event_types=["api_key.created"],
    )  # fmt: skip
    AutoTopUp.objects.create(
        organization_id=org.id, is_on=True, threshold_cents=1, amount_cents=500,
        monthly_cap_cents=500, changed_by="x", changed_at=timezone.now(),
    )  # fmt: skip
    delete(org)
    assert not WebhookEndpoint.objects.get(id=endpoint.id).is_enabled
    assert not WebhookSecret.objects.exists()
    assert not AutoTopUp.objects.get().is_on


def test_what_stands_in_the_way_is_said_first_and_refused(
    org: SeededOrganization, key: ApiKey
) -> None:
    def owed(**_: Any) -> list[DeletionEffect]:
        return [DeletionEffect("$3.00 is owed.", is_obstacle=True)]

    organization_deletion_previewed.connect(owed)
    try:
        first = preview_deletion(org.organization)[0]
        assert first == DeletionEffect("$3.00 is owed.", is_obstacle=True)
        with pytest.raises(Conflict, match=r"\$3\.00 is owed"):
            delete(org)
    finally:
        organization_deletion_previewed.disconnect(owed)
    key.refresh_from_db()
    assert key.revoked_at is None


def test_credit_that_is_left_is_named(org: SeededOrganization) -> None:
    grant_credit(
        organization_id=org.id, kind=GrantKind.PROMOTIONAL, amount_nanos=5 * 10**9,
        idempotency_key="a", actor=OPERATOR, reason="test", now=timezone.now() - timedelta(hours=1),
    )  # fmt: skip
    said = " ".join(each.words for each in preview_deletion(org.organization))
    assert "$5.00 of credit is left" in said


def test_it_needs_the_name_and_an_owner_and_ends_once(org: SeededOrganization) -> None:
    with pytest.raises(InvalidValue):
        delete(org, name="acme")
    with pytest.raises(NotPermitted):
        delete(org, actor=org.actor_of(org.join(Role.ADMIN)))
    owner = org.actor
    delete(org, actor=owner)
    with pytest.raises(Conflict):
        delete(org, actor=owner)
    for verb in (resume_organization, suspend_organization):
        with pytest.raises(Conflict):
            verb(actor=OPERATOR, organization=org.organization, reason="abuse")


def test_in_the_api_the_dry_run_changes_nothing(
    org: SeededOrganization, api: APIClient, base: str
) -> None:
    preview = api.get(f"{base}/deletion-preview").json()
    assert preview["can_be_deleted"] is True
    assert {"message", "is_obstacle"} == set(preview["effects"][0])
    assert selectors.members(org.organization).exists()
    for query in ("", "?name=x"):
        assert api.delete(f"{base}{query}").json()["error"]["param"] == "name"
    assert api.delete(f"{base}?name=Acme").status_code == 204
    assert api.get(base).status_code == 404


def test_the_key_of_a_deleted_organization_is_not_valid(org: SeededOrganization, base: str) -> None:
    _, secret = org.mint(scopes=[Scope.MANAGE])
    client = APIClient(headers={"authorization": f"Bearer {secret}"})
    assert client.get(base).status_code == 200
    delete(org)
    assert client.get(base).status_code == 401


def test_a_person_owns_so_many_organizations_at_most(
    api: APIClient, org: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.organizations.services.ORGANIZATIONS_MAX", 2)
    assert api.post("/api/v1/organizations", {"name": "Two"}).status_code == 201
    assert api.post("/api/v1/organizations", {"name": "Three"}).status_code == 409


def test_a_project_is_restored_unless_its_name_is_taken(
    api: APIClient, org: SeededOrganization, base: str
) -> None:
    where = f"{base}/projects/{org.project.id}"
    assert api.post(f"{where}/restore").status_code == 409
    assert api.post(f"{where}/archive").json()["archived_at"]
    other = api.post(f"{base}/projects", {"name": "Default"}).json()["id"]
    assert api.post(f"{where}/restore").status_code == 409
    api.patch(f"{base}/projects/{other}", {"name": "Other"})
    assert api.post(f"{where}/restore").json()["archived_at"] is None
