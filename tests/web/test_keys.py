"""API keys in the console: the secret once, the end named, and nothing for outsiders."""

import re

import pytest
from django.test import Client

from control.accounts.models import User
from control.api_keys.models import SCOPES, ApiKey
from control.organizations.models import Membership
from control.permissions import Role
from serving.contract.api_key import is_well_formed
from tests.fixtures.organizations import SeededOrganization
from web.console.api_keys import SCOPE_LABELS
from web.console.base import address

pytestmark = pytest.mark.integration


def mint(client: Client, org: SeededOrganization, **changes: object):
    form = {"name": "Backend", "project": org.project.id, "scopes": "inference", **changes}
    return client.post(address(org.organization, "key_new"), form)


def test_the_secret_is_shown_once_and_works(member: Client, org: SeededOrganization) -> None:
    where = mint(member, org).url
    reply = member.get(where)
    secret = reply.context["secret"]
    assert is_well_formed(secret)
    assert secret in reply.content.decode()
    assert secret not in str(dict(member.session))
    again = member.get(where, follow=True).content.decode()
    assert "was already shown" in again
    assert secret not in again
    listed = member.get(address(org.organization, "keys")).content.decode()
    assert secret not in listed
    assert f"…{secret[-4:]}" in listed


def test_the_answer_with_the_secret_is_not_kept(member: Client, org: SeededOrganization) -> None:
    made = mint(member, org)
    assert "no-store" in made["cache-control"]
    assert "no-store" in member.get(made.url)["cache-control"]


def test_a_secret_on_its_way_is_encrypted(member: Client, org: SeededOrganization) -> None:
    made = mint(member, org)
    key = ApiKey.objects.get()
    assert f"secret of {key.id}" in member.session
    assert key.prefix not in str(dict(member.session))
    assert member.get(made.url).context["secret"].startswith(key.prefix)


def test_a_form_that_is_sent_twice_makes_one_key(member: Client, org: SeededOrganization) -> None:
    page = member.get(address(org.organization, "key_new"))
    token = page.context["form"]["token"].value()
    assert token in page.content.decode()
    first, again = mint(member, org, token=token), mint(member, org, token=token)
    assert first.url == again.url
    assert ApiKey.objects.count() == 1
    assert member.get(again.url).status_code == 200
    mint(member, org)
    assert ApiKey.objects.count() == 2


def test_a_form_with_a_mistake_keeps_what_was_typed(
    member: Client, org: SeededOrganization
) -> None:
    reply = mint(member, org, limit="five", lifetime="90")
    page = reply.content.decode()
    assert reply.status_code == 200
    assert 'value="Backend"' in page
    assert 'value="five"' in page
    assert '<option value="90" selected>' in page
    assert "is not an amount in dollars" in page
    assert not ApiKey.objects.exists()


def test_a_limit_and_an_end_are_set(member: Client, org: SeededOrganization) -> None:
    mint(member, org, limit="2.50", lifetime="30")
    key = ApiKey.objects.get()
    assert key.spend_limit_nanos == 2_500_000_000
    assert key.expires_at is not None


def test_a_key_goes_into_no_other_organizations_project(
    member: Client, org: SeededOrganization, outsider: SeededOrganization
) -> None:
    assert mint(member, org, project=outsider.project.id).status_code == 200
    assert not ApiKey.objects.exists()


RIGHTS = {
    "name": "Frontend",
    "scopes": ["inference", "manage"],
    "allowed_models": "small\nlarge",
    "allowed_networks": "10.0.0.0/8\n192.0.2.7/32",
    "expires_on": "2999-01-01",
}


def test_rights_are_set_at_first_and_changed_later(member: Client, org: SeededOrganization) -> None:
    mint(member, org, allowed_models="small", allowed_networks="10.0.0.0/8")
    key = ApiKey.objects.get()
    assert (key.allowed_models, key.allowed_networks) == (["small"], ["10.0.0.0/8"])
    where = address(org.organization, "key_edit", key.id)
    assert member.post(where, RIGHTS).status_code == 302
    key.refresh_from_db()
    assert (key.name, key.scopes) == ("Frontend", ["inference", "manage"])
    assert key.allowed_models == ["large", "small"]
    assert key.expires_at is not None
    shown = member.get(address(org.organization, "key", key.id)).content.decode()
    assert "large, small" in shown
    assert "10.0.0.0/8, 192.0.2.7/32" in shown
    assert 'value="2999-01-01"' in shown
    lifted = RIGHTS | {"allowed_models": "", "allowed_networks": " ", "expires_on": ""}
    member.post(where, lifted)
    key.refresh_from_db()
    assert (key.allowed_models, key.allowed_networks, key.expires_at) == (None, None, None)


def test_a_key_of_single_permissions_shows_them_and_keeps_them(
    member: Client, org: SeededOrganization
) -> None:
    assert mint(member, org, scopes=["billing:read", "inference"]).status_code == 302
    key = ApiKey.objects.get()
    assert key.scopes == ["inference", "billing:read"]
    shown = member.get(address(org.organization, "key", key.id)).content.decode()
    assert "Call models, See costs, balance and invoices" in shown
    checked = re.findall(r'name="scopes" value="([a-z_:]+)"[^>]* checked', shown)
    assert checked == ["inference", "billing:read"]


def test_every_scope_has_a_label() -> None:
    assert tuple(SCOPE_LABELS) == SCOPES


def test_a_day_that_is_left_as_it_is_leaves_the_moment(
    member: Client, org: SeededOrganization
) -> None:
    mint(member, org, lifetime="30")
    key = ApiKey.objects.get()
    day = f"{key.expires_at:%Y-%m-%d}"
    where = address(org.organization, "key_edit", key.id)
    member.post(where, RIGHTS | {"expires_on": day})
    assert ApiKey.objects.get().expires_at == key.expires_at


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("allowed_networks", "10.0.0.1/8"),
        ("expires_on", "2020-01-01"),
        ("name", " "),
        ("scopes", "root"),
    ],
)
def test_what_cannot_be_set_is_said_and_kept_in_the_form(
    member: Client, org: SeededOrganization, key: ApiKey, field: str, value: str
) -> None:
    where = address(org.organization, "key_edit", key.id)
    reply = member.post(where, RIGHTS | {field: value})
    assert reply.status_code == 400
    assert "192.0.2.7/32" in reply.content.decode() or field == "allowed_networks"
    assert "small\nlarge" in reply.content.decode()
    assert ApiKey.objects.get(id=key.id).name == "Backend"


def test_a_key_is_rotated_once_and_both_secrets_are_shown(
    member: Client, org: SeededOrganization, key: ApiKey
) -> None:
    where = address(org.organization, "key_rotate", key.id)
    wish = {"overlap": "24", "last_four": key.last_four}
    made = member.post(where, wish)
    shown = member.get(made.url).content.decode()
    assert "until then both work" in shown
    assert key.masked in shown
    again = member.post(where, wish)
    assert again.status_code == 400
    assert "was already replaced" in again.content.decode()
    page = member.get(address(org.organization, "key", key.id)).content.decode()
    assert "Old secrets that still work" in page
    assert key.masked in page
    member.post(address(org.organization, "key_end_old", key.id))
    page = member.get(address(org.organization, "key", key.id)).content.decode()
    assert "Old secrets that still work" not in page


def test_revoking_says_what_will_happen(
    member: Client, org: SeededOrganization, key: ApiKey
) -> None:
    page = member.get(address(org.organization, "key", key.id)).content.decode()
    assert "are refused within a second, on every gateway" in page


def test_revoking_needs_the_name(member: Client, org: SeededOrganization, key: ApiKey) -> None:
    url = address(org.organization, "key_revoke", key.id)
    reply = member.post(url, {"confirmation": "Backed"})
    assert reply.status_code == 400
    assert 'value="Backed"' in reply.content.decode()
    assert ApiKey.objects.get(id=key.id).revoked_at is None
    assert member.post(url, {"confirmation": "Backend"}).status_code == 302
    assert ApiKey.objects.get(id=key.id).revoked_at is not None


def test_a_developer_gets_no_key_to_the_management_api(
    client: Client, org: SeededOrganization
) -> None:
    user = User.objects.create_user("dev@acme.example")
    seat = {"organization": org.organization, "user": user, "role": Role.DEVELOPER}
    Membership.objects.create(**seat)
    client.force_login(user)
    assert mint(client, org, scopes=["inference", "manage"]).status_code == 302
    assert ApiKey.objects.get().scopes == ["inference"]


def test_who_may_make_no_keys_is_offered_none(
    client: Client, org: SeededOrganization, key: ApiKey
) -> None:
    user = User.objects.create_user("looker@acme.example")
    Membership.objects.create(organization=org.organization, user=user, role=Role.VIEWER)
    client.force_login(user)
    page = client.get(address(org.organization, "keys")).content.decode()
    assert "Backend" in page
    assert address(org.organization, "key_new") not in page


def test_a_developer_is_offered_changes_of_their_own_keys_alone(
    client: Client, org: SeededOrganization, key: ApiKey
) -> None:
    user = org.join(Role.DEVELOPER)
    client.force_login(user)
    mint(client, org, name="Mine")
    own = ApiKey.objects.get(created_by=user)
    for each, is_own in ((key, False), (own, True)):
        page = client.get(address(org.organization, "key", each.id)).content.decode()
        offered = {
            name: address(org.organization, name, each.id) in page
            for name in ("key_edit", "key_rotate", "key_revoke")
        }
        assert offered == dict.fromkeys(offered, is_own)
