"""API keys in the console: the secret once, the end named, and nothing for outsiders."""

import pytest
from django.test import Client

from control.keys.models import ApiKey
from control.tenants.models import Membership, Role, User
from serving.contract.key import is_well_formed
from tests.support.console import Tenant
from web.console.page import address

pytestmark = pytest.mark.integration


def mint(client: Client, tenant: Tenant, **changes: str):
    form = {"name": "Backend", "project": tenant.project.id, "scopes": "inference", **changes}
    return client.post(address(tenant.organization, "key_new"), form)


def test_the_secret_is_shown_once_and_works(member: Client, tenant: Tenant) -> None:
    reply = mint(member, tenant)
    secret = reply.context["secret"]
    assert reply.status_code == 201
    assert is_well_formed(secret)
    assert secret in reply.content.decode()
    listed = member.get(address(tenant.organization, "keys")).content.decode()
    assert secret not in listed
    assert f"…{secret[-4:]}" in listed


def test_the_answer_with_the_secret_is_not_kept(member: Client, tenant: Tenant) -> None:
    assert "no-store" in mint(member, tenant)["cache-control"]


def test_a_form_with_a_mistake_keeps_what_was_typed(member: Client, tenant: Tenant) -> None:
    reply = mint(member, tenant, limit="five", lifetime="90")
    page = reply.content.decode()
    assert reply.status_code == 200
    assert 'value="Backend"' in page
    assert 'value="five"' in page
    assert '<option value="90" selected>' in page
    assert "is not an amount in dollars" in page
    assert not ApiKey.objects.exists()


def test_a_limit_and_an_end_are_set(member: Client, tenant: Tenant) -> None:
    mint(member, tenant, limit="2.50", lifetime="30")
    key = ApiKey.objects.get()
    assert key.spend_limit_nanos == 2_500_000_000
    assert key.expires_at is not None


def test_a_key_goes_into_no_other_organizations_project(
    member: Client, tenant: Tenant, outsider: Tenant
) -> None:
    assert mint(member, tenant, project=outsider.project.id).status_code == 200
    assert not ApiKey.objects.exists()


def test_a_key_is_renamed(member: Client, tenant: Tenant, key: ApiKey) -> None:
    member.post(address(tenant.organization, "key_rename", key.id), {"name": "Frontend"})
    assert ApiKey.objects.get(id=key.id).name == "Frontend"


def test_revoking_says_what_will_happen(member: Client, tenant: Tenant, key: ApiKey) -> None:
    page = member.get(address(tenant.organization, "key", key.id)).content.decode()
    assert "is refused within a second, on every gateway" in page


def test_revoking_needs_the_name(member: Client, tenant: Tenant, key: ApiKey) -> None:
    url = address(tenant.organization, "key_revoke", key.id)
    reply = member.post(url, {"confirmation": "Backed"})
    assert reply.status_code == 400
    assert 'value="Backed"' in reply.content.decode()
    assert ApiKey.objects.get(id=key.id).revoked_at is None
    assert member.post(url, {"confirmation": "Backend"}).status_code == 302
    assert ApiKey.objects.get(id=key.id).revoked_at is not None


@pytest.mark.parametrize("section", ["key", "key_rename", "key_revoke"])
def test_an_outsider_finds_no_key(
    stranger: Client, outsider: Tenant, tenant: Tenant, key: ApiKey, section: str
) -> None:
    forms = {"name": "Mine", "confirmation": "Backend"}
    for organization in (tenant.organization, outsider.organization):
        url = address(organization, section, key.id)
        reply = stranger.get(url) if section == "key" else stranger.post(url, forms)
        assert reply.status_code == 404
    assert ApiKey.objects.get(id=key.id).name == "Backend"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.BILLING])
def test_lesser_roles_make_no_keys(client: Client, tenant: Tenant, role: str) -> None:
    user = User.objects.create_user("looker@acme.example")
    Membership.objects.create(organization=tenant.organization, user=user, role=role)
    client.force_login(user)
    assert mint(client, tenant).status_code == 403
    assert b"key_new" not in client.get(address(tenant.organization, "keys")).content
    assert not ApiKey.objects.exists()


def test_a_developer_gets_no_key_to_the_management_api(client: Client, tenant: Tenant) -> None:
    user = User.objects.create_user("dev@acme.example")
    seat = {"organization": tenant.organization, "user": user, "role": Role.DEVELOPER}
    Membership.objects.create(**seat)
    client.force_login(user)
    assert mint(client, tenant, scopes="inference manage").status_code == 201
    assert ApiKey.objects.get().scopes == ["inference"]
