"""SCIM as providers speak it, and as `scim2-tester` checks it."""

import json
from itertools import product
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from control.accounts.models import User
from control.api_keys.models import ApiKey, Scope
from control.api_keys.services import create_api_key
from control.audit.models import AuditEvent
from control.organizations.models import Membership
from control.permissions import Actor
from control.sso.connections import (
    create_scim_token,
    disable_scim,
    set_role_mapping,
    set_transfer_target,
)
from control.sso.domains import remove_domain
from control.sso.models import ScimGroup, ScimUser, SsoConnection
from control.sso.scim_members import NAMED_MAX
from tests.fixtures.identity_providers import OidcProvider
from tests.fixtures.name_server import NameServer
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.routes import routes
from tests.fixtures.sso import sign_in, verify, who

pytestmark = pytest.mark.integration
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ROUTES = routes("scim")
METHODS = ("get", "post", "put", "patch", "delete")


class Caller:
    """A provider with a token."""

    def __init__(self, token: str) -> None:
        self.client = Client(headers={"authorization": f"Bearer {token}"})

    def call(self, method: str, path: str, body: object = None):
        if method == "get":
            return self.client.get(f"/scim/v2{path}")
        sent = "" if body is None else json.dumps(body)
        verb = getattr(self.client, method)
        return verb(f"/scim/v2{path}", data=sent, content_type="application/scim+json")

    def get(self, path: str) -> Any:
        reply = self.call("get", path)
        assert reply.status_code == 200, reply.content
        return reply.json()

    def add(self, email: str, **fields: object) -> Any:
        sent = {"schemas": [USER], "userName": email, **fields}
        reply = self.call("post", "/Users", sent)
        assert reply.status_code == 201, reply.content
        return reply.json()

    def group(self, name: str, *members: str) -> Any:
        sent = {"schemas": [GROUP], "displayName": name, "members": [{"value": m} for m in members]}
        reply = self.call("post", "/Groups", sent)
        assert reply.status_code == 201, reply.content
        return reply.json()

    def patch(self, path: str, *operations: dict[str, Any]):
        return self.call("patch", path, {"schemas": [PATCH], "Operations": list(operations)})


@pytest.fixture
def caller(acme: SeededOrganization) -> Caller:
    return Caller(create_scim_token(actor=acme.actor, organization=acme.organization))


def role_of(org: SeededOrganization, email: str) -> str | None:
    seat = Membership.objects.filter(organization=org.organization, user__email=email).first()
    return seat.role if seat else None


def test_a_person_comes_and_is_found(acme: SeededOrganization, caller: Caller) -> None:
    made = caller.add(
        "grace@acme.example",
        externalId="00u1",
        name={"givenName": "Grace", "familyName": "Hopper", "formatted": "Grace Hopper"},
        emails=[{"value": "grace@acme.example", "primary": True, "type": "work"}],
        password="ignored",
        title="ignored",
    )
    assert made["meta"]["location"].endswith(f"/scim/v2/Users/{made['id']}")
    assert role_of(acme, "grace@acme.example") == "developer"
    assert User.objects.get(email="grace@acme.example").name == "Grace Hopper"
    for asked in ('userName eq "GRACE@acme.example"', 'externalId eq "00u1"'):
        found = caller.call("get", f"/Users?filter={asked}").json()
        assert [each["id"] for each in found["Resources"]] == [made["id"]]
    assert caller.get('/Users?filter=userName eq "x@acme.example"')["totalResults"] == 0
    assert caller.call("get", '/Users?filter=userName co "a"').json()["scimType"] == "invalidFilter"


def test_pages(caller: Caller) -> None:
    ids = [caller.add(f"p{n}@acme.example")["id"] for n in range(5)]
    page = caller.get("/Users?startIndex=2&count=2")
    assert (page["totalResults"], page["startIndex"], page["itemsPerPage"]) == (5, 2, 2)
    assert [each["id"] for each in page["Resources"]] == ids[1:3]
    assert caller.get("/Users?count=0")["totalResults"] == 5
    assert caller.get(f"/Users?startIndex={10**30}")["itemsPerPage"] == 0
    assert caller.call("get", "/Users?count=many").status_code == 400


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "value": {"active": False}},
        {"op": "Replace", "path": "active", "value": "False"},
    ],
    ids=["okta", "entra"],
)
def test_suspended_people_are_out_at_once(
    operation: dict,
    connected: SsoConnection,
    acme: SeededOrganization,
    oidc: OidcProvider,
    caller: Caller,
) -> None:
    made = caller.add("grace@acme.example")
    browser = Client()
    sign_in(browser, oidc, "grace@acme.example")
    user = User.objects.get(email="grace@acme.example")
    key, _ = mint(acme, user)
    assert browser.get(f"/{acme.id}/overview").status_code == 200
    reply = caller.patch(f"/Users/{made['id']}", operation)
    assert reply.json()["active"] is False
    assert browser.get(f"/{acme.id}/overview").status_code == 302
    assert who(browser) is None
    assert role_of(acme, user.email) is None
    key.refresh_from_db()
    assert key.revoked_at is not None
    again = sign_in(Client(), oidc, "grace@acme.example")
    assert "suspended" in again.context["reason"]
    caller.patch(f"/Users/{made['id']}", {"op": "replace", "value": {"active": True}})
    assert role_of(acme, user.email) == "developer"
    actions = set(
        AuditEvent.objects.filter(action__startswith="scim.").values_list("action", flat=True)
    )
    assert {
        "scim.token_created",
        "scim.user_added",
        "scim.user_suspended",
        "scim.user_resumed",
    } <= actions


def mint(org: SeededOrganization, user: User) -> tuple[ApiKey, str]:
    return create_api_key(actor=org.actor_of(user), project=org.project, name="Grace's")


def test_an_heir_takes_the_keys(acme: SeededOrganization, caller: Caller) -> None:
    made = caller.add("grace@acme.example")
    user = User.objects.get(email="grace@acme.example")
    key, _ = mint(acme, user)
    set_transfer_target(
        actor=acme.actor, organization=acme.organization, heir=acme.seat(acme.owner)
    )
    assert caller.call("delete", f"/Users/{made['id']}").status_code == 204
    key.refresh_from_db()
    assert (key.revoked_at, key.created_by) == (None, acme.owner)
    assert caller.call("get", f"/Users/{made['id']}").status_code == 404


def test_groups_give_roles(acme: SeededOrganization, caller: Caller) -> None:
    set_role_mapping(
        actor=acme.actor, organization=acme.organization, role_claim="",
        role_map={"Engineering": "developer", "IT": "admin"}, default_role="",
    )  # fmt: skip
    grace = caller.add("grace@acme.example")["id"]
    assert role_of(acme, "grace@acme.example") is None
    it = caller.group("IT", grace)
    assert role_of(acme, "grace@acme.example") == "admin"
    caller.group("Engineering", grace)
    remove = {"op": "remove", "path": f'members[value eq "{grace}"]'}
    assert caller.patch(f"/Groups/{it['id']}", remove).status_code == 200
    assert role_of(acme, "grace@acme.example") == "developer"
    caller.patch(
        f"/Groups/{it['id']}", {"op": "add", "path": "members", "value": [{"value": grace}]}
    )
    assert role_of(acme, "grace@acme.example") == "admin"
    assert {each["display"] for each in caller.get(f"/Users/{grace}")["groups"]} == {
        "IT",
        "Engineering",
    }
    caller.call("delete", f"/Groups/{it['id']}")
    assert role_of(acme, "grace@acme.example") == "developer"


def test_a_change_of_a_large_group_records_who_came_and_went(
    acme: SeededOrganization, caller: Caller
) -> None:
    users = [
        ScimUser(
            organization=acme.organization,
            user=User.objects.create_user(f"user{number:03}@acme.example"),
            user_name=f"user{number:03}@acme.example",
        )
        for number in range(NAMED_MAX + 2)
    ]
    ids = [user.id for user in ScimUser.objects.bulk_create(users)]
    group = f"/Groups/{caller.group('All', *ids)['id']}"
    added = AuditEvent.objects.get(action="scim.group_added").details
    assert (added["member_count"], added["members_added"][-1]) == (NAMED_MAX + 2, "and 2 more")
    caller.patch(group, {"op": "remove", "path": f'members[value eq "{ids[0]}"]'})
    event = AuditEvent.objects.get(action="scim.group_updated")
    assert event.details == {
        "before": {"member_count": NAMED_MAX + 2},
        "after": {"member_count": NAMED_MAX + 1},
        "members_removed": [f"⟦{users[0].user_id}⟧"],
    }
    caller.patch(group, {"op": "remove", "path": f'members[value eq "{ids[0]}"]'})
    assert AuditEvent.objects.filter(action="scim.group_updated").count() == 1


def test_a_change_of_a_large_group_costs_what_changes(caller: Caller) -> None:
    first, *others, last = (caller.add(f"p{n}@acme.example")["id"] for n in range(8))
    groups = [caller.group("Small", first)["id"], caller.group("Large", first, *others)["id"]]
    operation = {"op": "add", "path": "members", "value": [{"value": last}]}
    counts = []
    for group in groups:
        with CaptureQueriesContext(connection) as queries:
            caller.patch(f"/Groups/{group}", operation)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_new_name_of_a_group_changes_its_members_roles(
    acme: SeededOrganization, caller: Caller
) -> None:
    set_role_mapping(
        actor=acme.actor, organization=acme.organization, role_claim="",
        role_map={"IT": "admin"}, default_role="viewer",
    )  # fmt: skip
    path = f"/Groups/{caller.group('Eng', caller.add('grace@acme.example')['id'])['id']}"
    assert role_of(acme, "grace@acme.example") == "viewer"
    caller.patch(path, {"op": "replace", "path": "displayName", "value": "IT"})
    assert role_of(acme, "grace@acme.example") == "admin"
    caller.call("delete", path)
    assert role_of(acme, "grace@acme.example") == "viewer"


def test_the_last_owner_stays(acme: SeededOrganization, caller: Caller) -> None:
    made = caller.add(acme.owner.email)
    reply = caller.patch(f"/Users/{made['id']}", {"op": "replace", "value": {"active": False}})
    assert reply.status_code == 409
    assert "owner" in reply.json()["detail"]
    assert caller.call("delete", f"/Users/{made['id']}").status_code == 409
    assert ScimUser.objects.get(id=made["id"]).is_active
    assert role_of(acme, acme.owner.email) == "owner"


@pytest.mark.parametrize(
    ("email", "status"),
    [
        ("owner@outsider.example", 403),
        ("not an address", 400),
        ("root@acme.example", 403),
        ("x@acme.example\0", 400),
    ],
)
def test_it_speaks_of_own_addresses_only(
    email: str, status: int, caller: Caller, evil: SeededOrganization
) -> None:
    User.objects.create_superuser("root@acme.example", "x")
    reply = caller.call("post", "/Users", {"schemas": [USER], "userName": email})
    assert reply.status_code == status, reply.content
    assert reply.headers["content-type"] == "application/scim+json"


def test_nobody_becomes_somebody_elses(
    acme: SeededOrganization, evil: SeededOrganization, caller: Caller
) -> None:
    made = caller.add("grace@acme.example")
    for email in (evil.owner.email, "x@sub.acme.example"):
        renamed = {"op": "replace", "path": "userName", "value": email}
        assert caller.patch(f"/Users/{made['id']}", renamed).status_code == 403
        put = {"schemas": [USER], "userName": email}
        assert caller.call("put", f"/Users/{made['id']}", put).status_code == 403
    assert caller.get(f"/Users/{made['id']}")["userName"] == "grace@acme.example"


def test_a_lost_domain_ends_no_strangers_sessions(
    connected: SsoConnection,
    oidc: OidcProvider,
    evil: SeededOrganization,
    names: NameServer,
    caller: Caller,
) -> None:
    """Whoever suspends a person of a domain that is not theirs any more takes the seat alone."""
    acme, made = connected.organization, caller.add("grace@acme.example")
    browser = Client()
    sign_in(browser, oidc, "grace@acme.example")
    [domain] = acme.sso_domains.all()
    remove_domain(actor=Actor.for_system("tests"), organization=acme, domain_id=domain.id)
    verify(evil, names, "acme.example")
    caller.patch(f"/Users/{made['id']}", {"op": "replace", "value": {"active": False}})
    assert not Membership.objects.filter(organization=acme, user__email="grace@acme.example")
    assert who(browser) is not None


def test_a_name_is_taken_once(caller: Caller) -> None:
    caller.add("grace@acme.example")
    reply = caller.call("post", "/Users", {"schemas": [USER], "userName": "Grace@acme.example"})
    assert (reply.status_code, reply.json()["scimType"]) == (409, "uniqueness")


def everything() -> list[Any]:
    """Return all that SCIM could change."""
    models = (ScimUser, ScimGroup, ScimGroup.members.through, Membership, User)
    return [list(model._default_manager.order_by("pk").values()) for model in models]


def test_another_organizations_token_finds_and_changes_nothing(
    acme: SeededOrganization, evil: SeededOrganization, caller: Caller
) -> None:
    made, group = caller.add("grace@acme.example"), caller.group("IT")
    group = caller.group("Eng", made["id"])
    stranger = Caller(create_scim_token(actor=evil.actor, organization=evil.organization))
    off = {"op": "replace", "path": "active", "value": False}
    sent = {
        "schemas": [PATCH], "Operations": [off], "userName": "grace@acme.example",
        "displayName": "x", "members": [{"value": made["id"]}],
    }  # fmt: skip
    ids, before = {"user_id": made["id"], "group_id": group["id"]}, everything()
    for route in ROUTES:
        for method in METHODS:
            path = route.path(ids).removeprefix("/scim/v2")
            reply = stranger.call(method, path, None if method == "get" else sent)
            assert reply.status_code < 500
            assert "grace@acme.example" not in reply.content.decode()
            if set(ids) & set(route.parameters):
                assert reply.status_code in (404, 405), (method, path)
    assert everything() == before
    assert stranger.get("/Users")["totalResults"] == 0


@pytest.mark.parametrize("role", ["nobody", "owner"])
def test_no_session_and_no_key_is_its_token(
    role: str, org: SeededOrganization, ids: dict[str, str]
) -> None:
    client = Client()
    if role != "nobody":
        client.force_login(org.owner)
    tokens = ["", "Basic x", "Bearer nonsense"]
    if role == "owner":
        tokens.append(f"Bearer {org.mint(scopes=[Scope.MANAGE])[1]}")
    for token, route, method in product(tokens, ROUTES, METHODS):
        headers = {"authorization": token} if token else {}
        reply = getattr(client, method)(route.path(ids), headers=headers)
        assert reply.status_code == 401, (method, route, token)
        assert reply.headers["www-authenticate"].startswith("Bearer")


@pytest.fixture
def ids(org: SeededOrganization) -> dict[str, str]:
    group = ScimGroup.objects.create(organization=org.organization, display_name="IT")
    user = ScimUser.objects.create(
        organization=org.organization, user=org.owner, user_name=org.owner.email
    )
    return {"user_id": user.id, "group_id": group.id}


def test_a_token_that_was_rotated_or_ended_is_none(
    acme: SeededOrganization, caller: Caller
) -> None:
    rotated = create_scim_token(actor=acme.actor, organization=acme.organization)
    assert caller.call("get", "/Users").status_code == 401
    assert Caller(rotated).get("/Users")["totalResults"] == 0
    disable_scim(actor=acme.actor, organization=acme.organization)
    assert Caller(rotated).call("get", "/Users").status_code == 401


@pytest.mark.parametrize(
    "body",
    ["", "[]", "null", "[" * 9000, '{"userName": 1}', '{"Operations": {}}', '{"a": "\\ud800"}'],
)
def test_nonsense_is_refused(body: str, caller: Caller) -> None:
    made = caller.add("grace@acme.example")
    for method, path in (
        ("post", "/Users"), ("put", f"/Users/{made['id']}"), ("patch", f"/Users/{made['id']}"),
        ("post", "/Groups"),
    ):  # fmt: skip
        verb = getattr(caller.client, method)
        reply = verb(f"/scim/v2{path}", data=body, content_type="application/json")
        assert reply.status_code == 400, (method, path, reply.content)
