"""Projects and organizations in the console: made, named, ended, and whose right that is."""

import pytest
from django.test import Client

from control.accounts.models import User
from control.api_keys.models import ApiKey
from control.organizations import selectors
from control.organizations.models import Membership, Organization, Project
from control.organizations.services import suspend_organization
from control.permissions import Role
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


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


def test_only_owners_are_offered_to_rename_and_delete(org: SeededOrganization) -> None:
    client = sit(org, Role.ADMIN)
    page = client.get(address(org.organization, "settings")).content.decode()
    assert "An owner can rename it." in page
    assert "Delete this organization" not in page


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


def test_lesser_roles_are_not_offered_to_archive(member: Client, org: SeededOrganization) -> None:
    where = of_project(org, "project")
    assert "Archive Default" in member.get(where).content.decode()
    assert "Archive Default" not in sit(org, Role.DEVELOPER).get(where).content.decode()


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
    assert "You lose access at once. There are no other members." in page
    wrong = member.post(where, {"confirmation": "Acme"})
    assert wrong.status_code == 400
    assert 'value="Acme"' in wrong.content.decode()
    reply = member.post(where, {"confirmation": "Acme Research"}, follow=True)
    assert "create your own" in reply.content.decode()
    assert member.get(address(org.organization, "overview")).status_code == 404


def test_nobody_makes_keys_while_suspended(member: Client, org: SeededOrganization) -> None:
    suspend_organization(actor=OPERATOR, organization=org.organization, reason="abuse")
    form = {"name": "Backend", "project": org.project.id, "scopes": "inference"}
    reply = member.post(address(org.organization, "key_new"), form)
    assert "The organization is suspended." in reply.content.decode()
    assert not ApiKey.objects.exists()
