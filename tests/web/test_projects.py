"""Projects and organizations in the console: made, named, ended, and whose right that is."""

import pytest
from django.test import Client

from control.keys.models import ApiKey
from control.tenants import selectors
from control.tenants.models import Membership, Organization, Project, Role, User
from control.tenants.services import suspend_organization
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.routes import routes
from web.console.page import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
FORMS = [
    ("project_rename", {"name": "Mine"}),
    ("project_origins", {"allowed_origins": ""}),
    ("project_archive", {"confirmation": "Default"}),
    ("project_restore", {}),
]


def sit(org: SeededOrganization, role: str) -> Client:
    user = User.objects.create_user(f"{role}@acme.example")
    Membership.objects.create(organization=org.organization, user=user, role=role)
    client = Client()
    client.force_login(user)
    return client


def of_project(org: SeededOrganization, section: str) -> str:
    return address(org.organization, section, org.project.id)


def test_the_organization_gets_another_name(member: Client, org: SeededOrganization) -> None:
    where = address(org.organization, "settings_rename")
    assert member.post(where, {"name": " New & Co "}).status_code == 302
    assert "New &amp; Co" in member.get(address(org.organization, "settings")).content.decode()
    refused = member.post(where, {"name": "a\x1bb"})
    assert refused.status_code == 400
    assert "printable" in refused.content.decode()


@pytest.mark.parametrize("role", [Role.ADMIN, Role.BILLING, Role.DEVELOPER, Role.VIEWER])
def test_only_owners_rename_and_delete(org: SeededOrganization, role: str) -> None:
    client = sit(org, role)
    page = client.get(address(org.organization, "settings")).content.decode()
    assert "An owner can rename it." in page
    assert "Delete this organization" not in page
    for section, data in (
        ("settings_rename", {"name": "Mine"}),
        ("settings_delete", {"confirmation": org.organization.name}),
    ):
        reply = client.post(address(org.organization, section), data)
        assert reply.status_code in (400, 403)  # a refused form is shown again
    assert client.get(address(org.organization, "settings_delete")).status_code == 403
    assert Organization.objects.get(id=org.organization.id).is_active


def test_a_project_is_made_in_the_switcher(member: Client, org: SeededOrganization) -> None:
    where = address(org.organization, "project_new")
    assert where in member.get(address(org.organization, "overview")).content.decode()
    assert member.post(where, {"name": "Default"}).status_code == 400
    reply = member.post(where, {"name": "Second"})
    made = Project.objects.get(name="Second")
    assert reply.url == address(org.organization, "overview", project=made.id)


def test_a_project_ends_and_opens_again_without_its_keys(
    member: Client, org: SeededOrganization, key: ApiKey
) -> None:
    page = member.get(of_project(org, "project")).content.decode()
    assert "1 API key stops working within a second" in page
    where = of_project(org, "project_archive")
    assert member.post(where, {"confirmation": "default"}).status_code == 400
    assert member.post(where, {"confirmation": "Default"}).status_code == 302
    assert Project.objects.get().is_archived
    assert member.post(of_project(org, "project_restore")).status_code == 302
    assert not Project.objects.get().is_archived
    key.refresh_from_db()
    assert key.revoked_at is not None


@pytest.mark.parametrize("role", [Role.BILLING, Role.DEVELOPER, Role.VIEWER])
def test_lesser_roles_manage_no_projects(org: SeededOrganization, role: str) -> None:
    client = sit(org, role)
    assert client.get(address(org.organization, "project_new")).status_code == 403
    assert client.post(address(org.organization, "project_new"), {"name": "X"}).status_code == 403
    assert "Archive Default" not in client.get(of_project(org, "project")).content.decode()
    for section, data in FORMS:
        assert client.post(of_project(org, section), data).status_code in (400, 403)
    assert list(Project.objects.values_list("name", "archived_at")) == [("Default", None)]


def test_outsiders_find_no_projects(
    stranger: Client, org: SeededOrganization, outsider: SeededOrganization
) -> None:
    for organization in (org.organization, outsider.organization):
        assert stranger.get(address(organization, "project", org.project.id)).status_code == 404
        for section, data in FORMS:
            where = address(organization, section, org.project.id)
            assert stranger.post(where, data).status_code == 404
    for section in ("project_new", "settings_delete", "settings_rename"):
        reply = stranger.post(address(org.organization, section), {"name": "Mine"})
        assert reply.status_code == 404


def test_an_organization_is_made_by_who_owns_it(member: Client, org: SeededOrganization) -> None:
    assert (
        "/organizations/new" in member.get(address(org.organization, "overview")).content.decode()
    )
    reply = member.post("/organizations/new", {"name": "Second"})
    made = Organization.objects.get(name="Second")
    assert reply.url == address(made, "overview")
    assert selectors.membership(org.owner, made.id).role == Role.OWNER
    assert member.post("/organizations/new", {"name": " "}).status_code == 400


def test_deleting_says_first_what_ends_and_ends_it(
    member: Client, org: SeededOrganization, key: ApiKey
) -> None:
    where = address(org.organization, "settings_delete")
    page = member.get(where).content.decode()
    assert "1 API key stops working within a second, on every gateway." in page
    assert "You lose your seat at once; nobody else has one." in page
    wrong = member.post(where, {"confirmation": "Acme"})
    assert wrong.status_code == 400
    assert 'value="Acme"' in wrong.content.decode()
    reply = member.post(where, {"confirmation": "Acme Research"}, follow=True)
    assert "create your own" in reply.content.decode()
    assert member.get(address(org.organization, "overview")).status_code == 404


def test_a_suspended_organization_is_told_so_on_every_page(
    member: Client, org: SeededOrganization, key: ApiKey, prices: object
) -> None:
    suspend_organization(actor=OPERATOR, organization=org.organization)
    ids = {"organization_id": org.organization.id, "project_id": org.project.id}
    ids |= {"key_id": key.id, "member_id": selectors.members(org.organization)[0].id}
    told = 0
    for route in routes("console"):
        if "organization_id" not in route.parameters:
            continue
        reply = member.get(route.path(ids))
        assert reply.status_code < 500, route.template
        if reply.status_code == 200 and not reply.streaming and b"<main" in reply.content:
            assert b"uspended" in reply.content, route.template
            told += 1
    assert told >= 15


def test_nobody_makes_keys_while_suspended(member: Client, org: SeededOrganization) -> None:
    suspend_organization(actor=OPERATOR, organization=org.organization)
    form = {"name": "Backend", "project": org.project.id, "scopes": "inference"}
    reply = member.post(address(org.organization, "key_new"), form)
    assert "The organization is suspended." in reply.content.decode()
    assert not ApiKey.objects.exists()
