"""Whatever the management API has of an organization looks missing to everybody else."""

import pytest
from django.urls import get_resolver
from rest_framework.test import APIClient

from control.keys.models import ApiKey, Scope
from control.tenants import selectors, services
from tests.fixtures.organizations import SeededOrganization, make_model, make_variant

METHODS = ("get", "post", "patch", "delete")


def tenant_routes() -> list[str]:
    """Return every route of the management API that names an organization in its path."""
    prefix = "api/v1/"
    found = []
    for resolver in get_resolver().url_patterns:
        if str(resolver.pattern) == prefix:
            found += [str(each.pattern) for each in resolver.url_patterns]
    return [prefix + route for route in found if "organization_id" in route]


ROUTES = tenant_routes()


def address(route: str, org: SeededOrganization, key: ApiKey) -> str:
    invitation, _ = services.invite_member(
        actor=org.actor, organization=org.organization, email="new@example.com", role="viewer"
    )
    model = make_model()
    make_variant(model)
    ids = {
        "<str:organization_id>": org.id,
        "<str:project_id>": org.project.id,
        "<str:key_id>": key.id,
        "<str:member_id>": org.seat(org.owner).id,
        "<str:invitation_id>": invitation.id,
        "<path:model>": model.id,
    }
    for name, value in ids.items():
        route = route.replace(name, value)
    assert "<" not in route
    return f"/{route}"


def test_there_are_routes_to_try() -> None:
    assert len(ROUTES) >= 12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("route", ROUTES)
def test_an_outsider_finds_nothing(
    route: str, method: str, org: SeededOrganization, key: ApiKey, stranger: APIClient
) -> None:
    reply = getattr(stranger, method)(address(route, org, key), {})
    assert reply.status_code in (404, 405)
    if reply.status_code == 404:
        assert reply.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("route", ROUTES)
def test_an_outsiders_key_finds_nothing(
    route: str, org: SeededOrganization, key: ApiKey, outsider: SeededOrganization
) -> None:
    _, secret = outsider.mint(scopes=[Scope.MANAGE])
    client = APIClient(headers={"authorization": f"Bearer {secret}"})
    assert client.get(address(route, org, key)).status_code in (404, 405)


@pytest.mark.parametrize("route", ROUTES)
def test_nobody_gets_in_without_credentials(
    route: str, org: SeededOrganization, key: ApiKey
) -> None:
    reply = APIClient().get(address(route, org, key))
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("route", [each for each in ROUTES if each.count("_id>") > 1])
def test_an_insiders_organization_does_not_open_an_outsiders_rows(
    route: str,
    org: SeededOrganization,
    key: ApiKey,
    outsider: SeededOrganization,
    stranger: APIClient,
) -> None:
    foreign = address(route, org, key).replace(org.id, outsider.id)
    for method in METHODS:
        assert getattr(stranger, method)(foreign, {}).status_code in (404, 405)


def test_the_outsider_changed_nothing(
    org: SeededOrganization, key: ApiKey, stranger: APIClient
) -> None:
    stranger.post(f"/api/v1/organizations/{org.id}/keys/{key.id}/revoke")
    key.refresh_from_db()
    assert key.revoked_at is None
    assert not selectors.project(org.organization, org.project.id).is_archived
