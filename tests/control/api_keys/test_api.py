"""API keys through the management API."""

import pytest
from rest_framework.test import APIClient

from control.api_keys.models import ApiKey, Scope
from control.api_keys.services import create_api_key, revoke_key
from control.feed.selectors import last_record
from control.organizations.members import change_role, remove_member
from control.organizations.models import Membership
from control.organizations.services import resume_organization, suspend_organization
from control.permissions import Role
from serving.contract.api_key import is_well_formed, make_secret
from tests.fixtures.organizations import OPERATOR, SeededOrganization

OWNED_BY_US = [
    "id", "organization_id", "digest", "kind", "prefix", "last_four", "created_by", "revoked_at",
    "last_used_at", "created_at", "secret", "role", "limits",
]  # fmt: skip


def test_a_minted_key_shows_its_secret_once(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    reply = api.post(f"{base}/api-keys", {"project_id": org.project.id, "name": "Backend"})
    shown = api.get(f"{base}/api-keys/{reply.json()['id']}").json()
    assert reply.status_code == 201
    assert is_well_formed(reply.json()["secret"])
    assert "secret" not in shown
    assert "digest" not in shown


def test_what_is_ours_cannot_be_set(api: APIClient, base: str, org: SeededOrganization) -> None:
    for field in OWNED_BY_US:
        wish = {"project_id": org.project.id, "name": "Backend", field: "x"}
        error = api.post(f"{base}/api-keys", wish).json()["error"]
        assert (error["code"], error["param"]) == ("unknown_parameter", field)
    assert not ApiKey.objects.exists()


def test_a_change_is_made_as_a_whole_or_not_at_all(api: APIClient, base: str, key: ApiKey) -> None:
    for field, value in (
        ("scopes", []), ("scopes", None), ("allowed_models", []),
        ("allowed_networks", ["10.0.0.1/8"]),
        ("expires_at", "2020-01-01T00:00:00Z"), ("spend_limit_nanos", -1), ("project_id", "x"),
    ):  # fmt: skip
        wish = {"name": "New", "allowed_networks": ["10.0.0.0/8"], field: value}
        reply = api.patch(f"{base}/api-keys/{key.id}", wish)
        assert reply.status_code == 400, field
        assert reply.json()["error"]["param"].split(".")[0] == field
        key.refresh_from_db()
        assert (key.name, key.allowed_networks) == ("Backend", None)


def test_all_that_can_be_set_can_be_changed(api: APIClient, base: str, key: ApiKey) -> None:
    wish = {
        "name": "New", "scopes": ["inference", "manage"], "allowed_models": ["small"],
        "allowed_networks": ["10.0.0.0/8"], "expires_at": "2999-01-01T00:00:00Z",
        "spend_limit_nanos": 5,
    }  # fmt: skip
    shown = api.patch(f"{base}/api-keys/{key.id}", wish).json()
    assert {name: shown[name] for name in wish} == wish
    lifted = dict.fromkeys(
        ("allowed_models", "allowed_networks", "expires_at", "spend_limit_nanos")
    )
    shown = api.patch(f"{base}/api-keys/{key.id}", lifted).json()
    assert {name: shown[name] for name in lifted} == lifted


@pytest.mark.parametrize(
    ("role", "wishes"),
    [
        (
            Role.BILLING,
            [({"spend_limit_nanos": 5}, 200), ({"spend_limit_nanos": 5, "name": "x"}, 403)],
        ),
        (
            Role.DEVELOPER,
            [
                ({"name": "x", "spend_limit_nanos": 5}, 403),
                ({"name": "x", "scopes": ["manage"]}, 403),
                ({"name": "x"}, 403),
            ],
        ),
        (Role.VIEWER, [({}, 403)]),
    ],
)
def test_each_role_changes_what_is_its_own(
    org: SeededOrganization,
    base: str,
    key: ApiKey,
    role: Role,
    wishes: list[tuple[dict[str, object], int]],
) -> None:
    client = APIClient()
    client.force_login(org.join(role))
    for wish, status in wishes:
        assert client.patch(f"{base}/api-keys/{key.id}", wish).status_code == status, wish
        key.refresh_from_db()
        assert (key.name == "Backend") == ("name" not in wish or status != 200)


def test_a_rotated_key_has_two_secrets_for_a_while(
    org: SeededOrganization, base: str, api: APIClient
) -> None:
    key, first = org.mint(scopes=[Scope.MANAGE])
    where = f"{base}/api-keys/{key.id}"
    reply = api.post(f"{where}/rotate", {"last_four": key.last_four}).json()
    second, [old] = reply["secret"], reply["previous_secrets"]
    assert (old["last_four"], reply["last_four"]) == (first[-4:], second[-4:])
    assert [bearer(each).get(base).status_code for each in (first, second)] == [200, 200]
    again = api.post(f"{where}/rotate", {"last_four": key.last_four})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")
    assert api.post(f"{where}/revoke-previous-secrets").json()["previous_secrets"] == []
    assert [bearer(each).get(base).status_code for each in (first, second)] == [401, 200]
    assert api.post(f"{where}/revoke-previous-secrets").status_code == 409


def test_a_key_does_what_its_scopes_say(org: SeededOrganization, base: str) -> None:
    _, secret = org.mint(scopes=["billing:read"])
    client = bearer(secret)
    assert client.get(base).status_code == 200
    assert client.get(f"{base}/invoices").status_code == 200
    for reply, scope in (
        (client.get(f"{base}/audit-events"), "audit:read"),
        (client.post(f"{base}/projects", {"name": "x"}), "projects:write"),
        (client.post(f"{base}/api-keys", {"name": "x", "project_id": org.project.id}),
         "api_keys:write"),
    ):  # fmt: skip
        assert reply.status_code == 403
        assert reply.json()["error"]["message"] == f"The API key lacks the scope {scope}."


@pytest.mark.parametrize("scopes", [["manage"], ["billing:read"], ["api_keys:grant"]])
def test_a_key_gives_and_reveals_no_scope_that_it_lacks(
    org: SeededOrganization, base: str, scopes: list[str]
) -> None:
    stronger, _ = org.mint(scopes=scopes)
    weaker, _ = org.mint(scopes=["audit:read"])
    client = bearer(org.mint(scopes=["api_keys:write", "audit:read"])[1])
    new = {"name": "x", "project_id": org.project.id}
    assert client.post(f"{base}/api-keys", {**new, "scopes": ["audit:read"]}).status_code == 201
    for reply in (
        client.post(f"{base}/api-keys", {**new, "scopes": scopes}),
        client.patch(f"{base}/api-keys/{weaker.id}", {"scopes": scopes}),
        client.post(f"{base}/api-keys/{stronger.id}/rotate", {"last_four": stronger.last_four}),
        client.patch(f"{base}/api-keys/{stronger.id}", {"scopes": ["inference"]}),
    ):
        assert reply.status_code == 403
        assert "The API key lacks the scope" in reply.json()["error"]["message"]


def test_a_developer_makes_keys_of_their_own_permissions_only(
    org: SeededOrganization, base: str
) -> None:
    client = APIClient()
    client.force_login(org.join(Role.DEVELOPER))
    new = {"name": "x", "project_id": org.project.id}
    made = client.post(f"{base}/api-keys", {**new, "scopes": ["organization:read"]})
    assert made.status_code == 201
    assert bearer(made.json()["secret"]).get(base).status_code == 200
    refused = client.post(f"{base}/api-keys", {**new, "scopes": ["billing:read"]})
    assert refused.status_code == 403
    assert "billing:read" in refused.json()["error"]["message"]


def test_a_lesser_role_ends_the_keys_beyond_it(org: SeededOrganization, base: str) -> None:
    admin = org.join(Role.ADMIN)
    secrets = {
        scope: create_api_key(
            actor=org.actor_of(admin), project=org.project, name="x", scopes=[scope]
        )[1]
        for scope in ("billing:read", "organization:read")
    }
    membership = Membership.objects.get(user=admin)
    change_role(actor=org.actor, membership=membership, role=Role.DEVELOPER)
    answers = {scope: bearer(secret).get(base).status_code for scope, secret in secrets.items()}
    assert answers == {"billing:read": 401, "organization:read": 200}


def test_a_call_of_the_management_api_is_use(org: SeededOrganization, base: str) -> None:
    key, secret = org.mint(scopes=[Scope.MANAGE])
    bearer(secret).get(base)
    key.refresh_from_db()
    first = key.last_used_at
    bearer(secret).get(base)
    key.refresh_from_db()
    assert first is not None
    assert key.last_used_at == first  # within a minute it is not written again


def test_a_key_is_renamed_and_revoked(api: APIClient, base: str, key: ApiKey) -> None:
    assert api.patch(f"{base}/api-keys/{key.id}", {"name": "New"}).json()["name"] == "New"
    assert api.post(f"{base}/api-keys/{key.id}/revoke").json()["revoked_at"] is not None
    assert api.post(f"{base}/api-keys/{key.id}/revoke").status_code == 409


def test_a_list_has_pages(api: APIClient, base: str, org: SeededOrganization) -> None:
    for number in range(5):
        org.mint(name=f"Key {number}")
    first = api.get(f"{base}/api-keys?limit=3").json()
    rest = api.get(first["next"]).json()
    names = [key["name"] for key in first["data"] + rest["data"]]
    assert names == [f"Key {number}" for number in reversed(range(5))]
    assert rest["next"] is None


def bearer(secret: str) -> APIClient:
    return APIClient(headers={"authorization": f"Bearer {secret}"})


@pytest.mark.parametrize("wrong", ["typo", "unknown", "revoked", "network", "injection"])
def test_whatever_is_wrong_with_a_key_gets_the_same_answer(
    org: SeededOrganization, base: str, wrong: str
) -> None:
    networks = ["10.9.8.0/24"] if wrong == "network" else None
    key, secret = org.mint(scopes=[Scope.MANAGE], allowed_networks=networks)
    if wrong == "revoked":
        revoke_key(actor=org.actor, key=key)
    secrets = {
        "typo": secret[:-1] + ("0" if secret[-1] != "0" else "1"),
        "unknown": make_secret(lambda alphabet: alphabet[0]),
        "injection": "' OR '1'='1",
    }
    reply = bearer(secrets.get(wrong, secret)).get(f"{base}/api-keys")
    assert reply.status_code == 401
    assert reply.json() == {
        "error": {
            "message": "The API key is not valid.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("10.9.8.7", 200), ("::ffff:10.9.8.7", 200), ("10.9.8.7:40000", 200),
        ("[::ffff:10.9.8.7]:40000", 200), ("10.9.9.7:40000", 401), ("unknown", 401),
    ],
)  # fmt: skip
def test_a_key_of_a_network_is_taken_however_a_proxy_writes_the_address(
    org: SeededOrganization, base: str, address: str, status: int
) -> None:
    _, secret = org.mint(scopes=[Scope.MANAGE], allowed_networks=["10.9.8.0/24"])
    assert bearer(secret).get(f"{base}/api-keys", REMOTE_ADDR=address).status_code == status


def test_a_good_key_of_a_suspended_organization_is_told_so(
    org: SeededOrganization, base: str
) -> None:
    secret = org.mint(scopes=[Scope.MANAGE])[1]
    suspend_organization(actor=OPERATOR, organization=org.organization, reason="abuse")
    reply = bearer(secret).get(f"{base}/api-keys")
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "organization_suspended")
    resume_organization(actor=OPERATOR, organization=org.organization)
    assert bearer(secret).get(f"{base}/api-keys").status_code == 200


def test_a_session_writes_only_with_the_csrf_token(org: SeededOrganization, base: str) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(org.owner)
    reply = client.post(f"{base}/api-keys", {"project_id": org.project.id, "name": "Forged"})
    assert reply.status_code == 403
    assert not ApiKey.objects.exists()


def test_a_key_made_by_a_key_ends_with_the_person_behind_it(
    org: SeededOrganization, base: str
) -> None:
    admin = org.join(Role.ADMIN)
    fields = {"actor": org.actor_of(admin), "project": org.project, "scopes": [Scope.MANAGE]}
    _, secret = create_api_key(name="First", **fields)
    made = []
    for scopes in (["manage"], ["inference"]):
        wish = {"project_id": org.project.id, "name": "Next", "scopes": scopes}
        reply = APIClient().post(
            f"{base}/api-keys", wish, headers={"authorization": f"Bearer {secret}"}
        )
        assert reply.status_code == 201
        made.append(reply.json())
        secret = reply.json()["secret"] if scopes == ["manage"] else secret
    by_key = APIClient(headers={"authorization": f"Bearer {secret}"})
    assert by_key.get(f"{base}/api-keys").status_code == 200
    remove_member(actor=org.actor, membership=org.seat(admin))
    assert by_key.get(f"{base}/api-keys").status_code == 401
    assert [last_record("api_key", each["id"]) for each in made] == [None, None]


def test_a_key_does_to_members_no_more_than_an_admin_whosever_it_is(
    org: SeededOrganization, base: str
) -> None:
    """The person behind a key may leave by themselves; the key may not leave for its owner."""
    owner = org.join(Role.OWNER)
    _, secret = create_api_key(
        actor=org.actor_of(owner), project=org.project, name="Key", scopes=[Scope.MANAGE]
    )
    caller = APIClient(headers={"authorization": f"Bearer {secret}"})
    assert caller.delete(f"{base}/members/{org.seat(owner).id}").status_code == 403
