"""API keys through the management API."""

import pytest
from rest_framework.test import APIClient

from control.keys.models import ApiKey, Scope
from control.keys.services import revoke_key
from control.tenants.models import Role
from control.tenants.services import resume_organization, suspend_organization
from serving.contract.key import is_well_formed, make_secret
from tests.support.organizations import OPERATOR, House

OWNED_BY_US = [
    "id", "organization_id", "digest", "kind", "prefix", "last_four", "created_by", "revoked_at",
    "last_used_at", "created_at", "secret", "role", "limits",
]  # fmt: skip


def test_a_minted_key_shows_its_secret_once(api: APIClient, base: str, house: House) -> None:
    reply = api.post(f"{base}/keys", {"project_id": house.project.id, "name": "Backend"})
    shown = api.get(f"{base}/keys/{reply.json()['id']}").json()
    assert reply.status_code == 201
    assert is_well_formed(reply.json()["secret"])
    assert "secret" not in shown
    assert "digest" not in shown


@pytest.mark.parametrize("field", OWNED_BY_US)
def test_what_is_ours_cannot_be_set(api: APIClient, base: str, house: House, field: str) -> None:
    wish = {"project_id": house.project.id, "name": "Backend", field: "x"}
    error = api.post(f"{base}/keys", wish).json()["error"]
    assert (error["code"], error["param"]) == ("unknown_parameter", field)
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("field", ["scopes", "models", "spend_limit_nanos", "project_id", "mode"])
def test_a_keys_rights_do_not_change(api: APIClient, base: str, key: ApiKey, field: str) -> None:
    reply = api.patch(f"{base}/keys/{key.id}", {"name": "New", field: None})
    key.refresh_from_db()
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == field
    assert key.name == "Backend"


def test_a_key_is_not_minted_in_an_outsiders_project(
    api: APIClient, base: str, outsider: House
) -> None:
    reply = api.post(f"{base}/keys", {"project_id": outsider.project.id, "name": "Mine"})
    assert reply.status_code == 404


def test_a_key_is_renamed_and_revoked(api: APIClient, base: str, key: ApiKey) -> None:
    assert api.patch(f"{base}/keys/{key.id}", {"name": "New"}).json()["name"] == "New"
    assert api.post(f"{base}/keys/{key.id}/revoke").json()["revoked_at"] is not None
    assert api.post(f"{base}/keys/{key.id}/revoke").status_code == 409


@pytest.mark.parametrize("role", [Role.VIEWER, Role.BILLING])
def test_roles_without_keys_look_and_touch_nothing(
    house: House, base: str, key: ApiKey, role: Role
) -> None:
    client = APIClient()
    client.force_login(house.join(role))
    wish = {"project_id": house.project.id, "name": "Mine"}
    assert client.get(f"{base}/keys").status_code == 200
    assert client.post(f"{base}/keys", wish).status_code == 403
    assert client.patch(f"{base}/keys/{key.id}", {"name": "x"}).status_code == 403
    assert client.post(f"{base}/keys/{key.id}/revoke").status_code == 403


def test_a_list_has_pages(api: APIClient, base: str, house: House) -> None:
    for number in range(5):
        house.mint(name=f"Key {number}")
    first = api.get(f"{base}/keys?limit=3").json()
    rest = api.get(first["next"]).json()
    names = [key["name"] for key in first["data"] + rest["data"]]
    assert names == [f"Key {number}" for number in reversed(range(5))]
    assert rest["next"] is None


def bearer(secret: str) -> APIClient:
    return APIClient(headers={"authorization": f"Bearer {secret}"})


def test_a_managing_key_manages_its_own_organization(house: House, base: str) -> None:
    client = bearer(house.mint(scopes=[Scope.MANAGE])[1])
    wish = {"project_id": house.project.id, "name": "From a key"}
    assert client.post(f"{base}/keys", wish).status_code == 201
    assert [each["id"] for each in client.get("/api/v1/organizations").json()["data"]] == [house.id]


def test_a_key_without_the_scope_is_told_so(house: House, base: str) -> None:
    reply = bearer(house.mint()[1]).get(f"{base}/keys")
    assert reply.status_code == 403
    assert reply.json()["error"]["type"] == "permission_denied"


@pytest.mark.parametrize("wrong", ["typo", "unknown", "revoked", "network", "injection"])
def test_whatever_is_wrong_with_a_key_gets_the_same_answer(
    house: House, base: str, wrong: str
) -> None:
    networks = ["10.9.8.0/24"] if wrong == "network" else None
    key, secret = house.mint(scopes=[Scope.MANAGE], networks=networks)
    if wrong == "revoked":
        revoke_key(actor=house.actor, key=key)
    secrets = {
        "typo": secret[:-1] + ("0" if secret[-1] != "0" else "1"),
        "unknown": make_secret("live", lambda alphabet: alphabet[0]),
        "injection": "' OR '1'='1",
    }
    reply = bearer(secrets.get(wrong, secret)).get(f"{base}/keys")
    assert reply.status_code == 401
    assert reply.json() == {
        "error": {
            "message": "The API key is not valid.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }


def test_a_good_key_of_a_suspended_organization_is_told_so(house: House, base: str) -> None:
    secret = house.mint(scopes=[Scope.MANAGE])[1]
    suspend_organization(actor=OPERATOR, organization=house.organization)
    reply = bearer(secret).get(f"{base}/keys")
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "organization_suspended")
    resume_organization(actor=OPERATOR, organization=house.organization)
    assert bearer(secret).get(f"{base}/keys").status_code == 200


def test_a_key_is_no_person(house: House) -> None:
    client = bearer(house.mint(scopes=[Scope.MANAGE])[1])
    assert client.post("/api/v1/organizations", {"name": "Mine"}).status_code == 403


def test_a_session_writes_only_with_the_csrf_token(house: House, base: str) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(house.owner)
    reply = client.post(f"{base}/keys", {"project_id": house.project.id, "name": "Forged"})
    assert reply.status_code == 403
    assert not ApiKey.objects.exists()
