"""Organizations, projects and members through the management API."""

from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from billing.credit.models import Budget
from billing.credit.selectors import budget
from control.audit.models import AuditEvent
from control.errors import Conflict
from control.organizations.models import BillingMode, Membership, Organization, Project
from control.organizations.signals import limits_changed
from control.permissions import Role
from serving.contract.budget import balance_budget_id, limit_budget_id
from tests.fixtures.organizations import SeededOrganization


def test_a_person_makes_an_organization_and_owns_it(
    api: APIClient, org: SeededOrganization
) -> None:
    made = api.post("/api/v1/organizations", {"name": "Second"}).json()
    seat = Membership.objects.get(organization_id=made["id"])
    assert (seat.user, seat.role) == (org.owner, Role.OWNER)


def test_an_organizations_terms_cannot_be_set(api: APIClient, base: str) -> None:
    before = Organization.objects.values().get()
    for field in ("id", "status", "billing_mode", "weight", "cache_salt_id", "x"):
        reply = api.patch(base, {"name": "New", field: "postpaid"})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)
    assert Organization.objects.values().get() == before


def test_an_organization_is_renamed_and_limited(api: APIClient, base: str) -> None:
    reply = api.patch(base, {"name": "New", "spend_limit_nanos": 5}).json()
    assert (reply["name"], reply["spend_limit_nanos"]) == ("New", 5)


def test_a_change_is_made_whole_or_not_at_all(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    """A postpaid organization's limit is the operator's: its new name is not kept either."""
    Organization.objects.filter(id=org.id).update(billing_mode=BillingMode.POSTPAID)
    reply = api.patch(base, {"name": "New", "spend_limit_nanos": 5})
    assert reply.status_code == 403
    assert Organization.objects.get(id=org.id).name == "Acme"
    assert not AuditEvent.objects.filter(action="organization.renamed").exists()


def test_a_change_of_a_project_is_made_whole_or_not_at_all(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    def refuse(**_: Any) -> None:
        raise Conflict("no room")

    limits_changed.connect(refuse)
    try:
        one = f"{base}/projects/{org.project.id}"
        assert api.patch(one, {"name": "New", "spend_limit_nanos": 5}).status_code == 409
        assert api.patch(base, {"name": "New", "spend_limit_nanos": 5}).status_code == 409
    finally:
        limits_changed.disconnect(refuse)
    assert (Project.objects.get().name, Organization.objects.get().name) == ("Default", "Acme")
    assert Project.objects.get().spend_limit_nanos is None


def test_limits_set_by_the_api_reach_the_budgets(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    api.patch(base, {"spend_limit_nanos": 7})
    api.patch(f"{base}/projects/{org.project.id}", {"spend_limit_nanos": 5})
    limits = {row.budget_id: row.limit_nanos for row in Budget.objects.all()}
    assert limits == {
        balance_budget_id(org.id): 0,
        limit_budget_id(org.id): 7,
        limit_budget_id(org.project.id): 5,
    }
    api.patch(base, {"spend_limit_nanos": None})
    assert budget(limit_budget_id(org.id), timezone.now()).limit_nanos is None


def test_projects_are_made_changed_and_archived(api: APIClient, base: str) -> None:
    made = api.post(f"{base}/projects", {"name": "Search", "spend_limit_nanos": 9}).json()
    one = f"{base}/projects/{made['id']}"
    assert api.patch(one, {"name": "Find", "spend_limit_nanos": None}).json()["name"] == "Find"
    assert api.post(f"{one}/archive").json()["archived_at"] is not None
    assert api.patch(one, {"name": "Again"}).status_code == 409
    assert len(api.get(f"{base}/projects").json()["data"]) == 2


def test_a_project_does_not_move(api: APIClient, base: str, outsider: SeededOrganization) -> None:
    for field in ("id", "organization", "organization_id", "archived_at"):
        reply = api.post(f"{base}/projects", {"name": "Search", field: outsider.id})
        assert reply.json()["error"]["code"] == "unknown_parameter", field
    assert not Project.objects.filter(name="Search").exists()


def test_a_bad_wish_is_named(api: APIClient, base: str) -> None:
    wishes: list[tuple[dict[str, Any], str, str]] = [
        ({}, "name", "missing_required_parameter"),
        ({"name": ""}, "name", "invalid_value"),
        ({"name": "x" * 101}, "name", "invalid_value"),
        ({"name": "a\u0000b"}, "name", "invalid_value"),
        ({"name": "ok", "spend_limit_nanos": -1}, "spend_limit_nanos", "invalid_value"),
        ({"name": "ok", "spend_limit_nanos": 2**63}, "spend_limit_nanos", "invalid_value"),
        ({"name": "Default"}, "name", "conflict"),
    ]
    for wish, param, code in wishes:
        error = api.post(f"{base}/projects", wish).json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["param"], error["code"]) == (param, code), wish


def test_a_body_that_is_no_object_is_refused(api: APIClient, base: str) -> None:
    for body in ("{", "[1]", '"x"', "null"):
        reply = api.post(f"{base}/projects", body, content_type="application/json")
        assert reply.status_code == 400, body
        assert reply.json()["error"]["type"] == "invalid_request_error"


def test_members_are_invited_changed_and_removed(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    seat = org.seat(org.join(Role.VIEWER))
    one = f"{base}/members/{seat.id}"
    assert api.patch(one, {"role": "developer"}).json()["role"] == "developer"
    assert api.patch(one, {"role": "developer", "user_id": "user_x"}).status_code == 400
    assert api.delete(one).status_code == 204
    assert api.get(one).status_code == 404


def test_an_invitation_is_listed_without_its_secret(api: APIClient, base: str) -> None:
    made = api.post(f"{base}/invitations", {"email": "new@example.com", "role": "viewer"}).json()
    listed = api.get(f"{base}/invitations").json()["data"]
    assert [each["id"] for each in listed] == [made["id"]]
    assert set(made) == {"id", "email", "role", "state", "created_at", "expires_at"}
    assert made["state"] == "open"
    assert api.delete(f"{base}/invitations/{made['id']}").status_code == 204


@pytest.mark.django_db
def test_the_api_describes_itself_without_other_hosts(client: Any) -> None:
    schema = client.get("/api/v1/schema")
    page = client.get("/api/v1/docs")
    assert "/api/v1/organizations/{organization_id}/api-keys" in schema.content.decode()
    assert "//" not in page.content.decode().replace("<!-- ", "").replace("http://testserver", "")
    assert "script-src 'self'" in page.headers["content-security-policy"].split("; ")
