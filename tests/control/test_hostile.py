"""Whatever is sent, whatever the address: control answers, and never with 500.

All addresses come from the URL table, all fields from the forms and the OpenAPI document, all
filters from the source, so that what is new is tried without being named here. What is tried falls
into four parts at random, always the same, of which `make test` runs one.
"""

import base64
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from random import Random
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.http import QueryDict
from django.test import Client

from control.accounts.models import User
from control.api.policies import BODY_BYTES_MAX
from control.api_keys.models import ApiKey, Scope
from control.catalog.models import Variant
from control.sso.connections import create_scim_token
from control.sso.models import ScimGroup, ScimUser, SsoConnection, encrypted_secret
from infra.local.config import ROOT
from serving.contract.credential import ROLES
from tests.fixtures.corpus import quarter
from tests.fixtures.credentials import bearer
from tests.fixtures.database import let_transaction_last
from tests.fixtures.openapi import openapi_document
from tests.fixtures.operations import ADMIN, Ids
from tests.fixtures.operator_tokens import (
    bearer_client,
    furnish_platform,
    make_operator,
    make_token,
)
from tests.fixtures.organizations import SeededOrganization, make_model, make_variant
from tests.fixtures.routes import Route, routes

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
SOURCES = [ROOT / folder for folder in ("platform", "billing", "web")]
FILTER = re.compile(r"(?:GET|query|query_params)(?:\.get(?:list)?\(|\[)\"(\w+)\"")
POSTED = re.compile(r"POST(?:\.get\w*\(|\[)\"(\w+)\"")
PARTS = 4
each_part = pytest.mark.parametrize("part", quarter(range(PARTS)))
HOSTILE_IDS = ["%00", "x%00y", "%ED%A0%80", "%FF", "%F0%9F%92%A3", "..%2F..", "'%22%3C%3E"]
HOSTILE_IDS += ["a" * 5_000]
HOSTILE_TEXTS = ["\x00", "a\x00b", "\x1b[31m", "\u202eevil", "<b>&amp;'\"", "=1+1", "-", "9" * 30]
HOSTILE_TEXTS += ["NaN", "-1", "0001-01-01", "9999-12-31", "2026-13-45", "é" * 5_000, "\U0001f4a3"]
TELLING_TEXTS = HOSTILE_TEXTS[1::3]
DEEP = 20_000
HOSTILE_VALUES = [
    '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', "1e400", "-1", "1" * 400, "NaN", "null", "true",
    "{}", "[]", "[null]", '["\\u0000"]', '["\\ud800"]', '{"a": "\\ud800"}', f'"{"a" * 20_000}"',
    "[" * 400 + "]" * 400, "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP,
    '"9999-12-31T23:59:59Z"', '"0001-01-01T00:00:00+14:00"',
]  # fmt: skip
TELLING_VALUES = ['"\\u0000"', '["\\u0000"]', "1e400", "1" * 400, "null", "{}"]
HOSTILE_BODIES = [b"", b"\xff\xfe", b"\x00", b'"\\ud800"', b"[]", b'"x"', b"nul", b"{", b"[" * DEEP]
HOSTILE_HEADERS = [
    {"cookie": r'penstock_session="\000"'},
    {"cookie": r'penstock_session="\000"; csrftoken="\000"; messages="\000"; theme="\000"'},
    {"cookie": "penstock_session=" + "\xff" * 40},
    {"authorization": "Bearer \xff\xfe"},
    {"authorization": "Bearer pen_live_" + "0" * 36},
    {"authorization": "Basic \xff"},
    {"accept": "application/\xff;q=x"},
    {"hx-request": "true", "hx-current-url": "http://["},
    {"x-forwarded-for": "x, \xff", "referer": "http://["},
    {"if-modified-since": "x", "if-none-match": "\xff", "range": "bytes=9-1"},
]

Try = tuple[str, str, Mapping[str, Any]]


@pytest.fixture
def ids(org: SeededOrganization, key: ApiKey) -> Ids:
    """What there is, by the names of addresses."""
    model = make_model()
    make_variant(model)
    return {
        "organization_id": org.id,
        "project_id": org.project.id,
        "key_id": key.id,
        "member_id": org.seat(org.owner).id,
        "model": model.id,
        "limit_id": f"balance:{org.id}",
        "app_label": "tenants",
    }


@pytest.fixture
def everybody(org: SeededOrganization) -> Client:
    """The owner of an organization who is an operator too: no door stops what is tried."""
    let_transaction_last()
    User.objects.filter(id=org.owner.id).update(operator_role="owner")
    client = Client(raise_request_exception=False)
    client.force_login(org.owner)
    return client


def part_of(tries: Iterable[Try], part: int) -> Iterator[Try]:
    """Yield those of the tries that fall into a part."""
    lot = Random(PARTS)
    return (each for each in tries if lot.randrange(PARTS) == part)


def failures(client: Client, tries: Iterator[Try]) -> list[str]:
    """Return what was answered with 500 or worse; 503 is a service of the tests' that is away."""
    found = []
    for method, path, options in tries:
        reply = getattr(client, method)(path, **options)
        if reply.status_code >= 500 and reply.status_code != 503:
            found.append(f"{method} {path[:200]} {str(options)[:200]}: {reply.status_code}")
    return found


def hostile_paths(route: Route, ids: Ids) -> Iterator[Try]:
    for name in route.parameters:
        for value in HOSTILE_IDS:
            yield "get", route.path({**ids, name: value}), {}
            if value == "%00":
                yield "post", route.path({**ids, name: value}), {}


ROOMS = ("api", "console", "accounts", "invitations", "internal", "stripe", "sso", "scim")


@each_part
def test_no_address_fails(everybody: Client, ids: Ids, part: int) -> None:
    found = (each for route in routes(*ROOMS) for each in hostile_paths(route, ids))
    assert failures(everybody, part_of(found, part)) == []


@each_part
def test_no_address_of_the_admin_fails(everybody: Client, ids: Ids, part: int) -> None:
    """Its hundreds of addresses are Django's own kinds: one hostile id each, and one unknown."""
    found = (
        ("get", route.path({**ids, name: value}), {})
        for route in routes("admin")
        for name in route.parameters
        for value in ("%00", "x", "9" * 30)
        if not route.template.endswith("(?P<url>.*)$")
    )
    assert failures(everybody, part_of(found, part)) == []


COMMON = {"project", "organization_id"}
"""What whole rooms read first, and refuse: it is tried where there is nothing else to read."""


@cache
def sources() -> tuple[str, ...]:
    """Return the text of all modules."""
    return tuple(file.read_text() for folder in SOURCES for file in folder.rglob("*.py"))


@cache
def filters() -> frozenset[str]:
    """Return what the source reads from queries by name."""
    named = {name for text in sources() for name in FILTER.findall(text)}
    return frozenset(named) | {"limit", "cursor", "page", "o", "q", "organization_id"}


class Reading:
    """Hears which names of a query are read while a page is answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        for method in ("__getitem__", "__contains__", "getlist"):
            monkeypatch.setattr(QueryDict, method, self._heard(getattr(QueryDict, method)))
        for method in ("items", "lists", "dict", "__iter__"):
            monkeypatch.setattr(QueryDict, method, self._all(getattr(QueryDict, method)))

    def of(self, client: Client, path: str) -> set[str]:
        """Return what a page reads; what it reads whole counts as all there is."""
        self.names = set()
        client.get(path)
        return self.names

    def _heard(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def heard(query: QueryDict, name: str, *rest: Any) -> Any:
            self.names.add(name)
            return method(query, name, *rest)

        return heard

    def _all(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def heard(query: QueryDict, *rest: Any) -> Any:
            self.names |= filters()
            return method(query, *rest)

        return heard


@each_part
def test_no_filter_fails(
    everybody: Client, ids: Ids, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"project", "cursor", "after"} <= filters()
    reading, read = Reading(monkeypatch), set()

    def tries() -> Iterator[Try]:
        for route in routes("api", "console", "accounts", "internal", "sso"):
            path = route.path(ids)
            names = reading.of(everybody, path)
            own, first = names - COMMON, names & COMMON - read
            read.update(first)
            for text in HOSTILE_TEXTS[2 + part :: PARTS]:  # the first two are no address
                for sent in filter(None, (own, first)):
                    yield "get", path, {"data": dict.fromkeys(sent, text)}

    assert failures(everybody, tries()) == []
    assert read


def fields(schema: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body of the OpenAPI document."""
    if reference := part.get("$ref"):
        part = schema["components"]["schemas"][reference.rpartition("/")[2]]
    return part.get("properties", {})


SCHEMA = openapi_document()


ADMIN_PATHS = [template for template in SCHEMA["paths"] if template.startswith(ADMIN)]


def json_tries(template: str, ids: Ids) -> Iterator[Try]:
    """Yield each operation with each hostile body, and its fields with each hostile value."""
    path = re.sub(r"{(\w+)}", lambda found: ids.get(found[1], "x"), template)
    for method, operation in SCHEMA["paths"][template].items():
        if method == "get":
            continue
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        names = list(fields(SCHEMA, body.get("schema", {})))
        each = [[name] for name in names]
        for value in HOSTILE_VALUES:
            # Alone too, where what is sent beside it could be refused first.
            for sent in [names, *(each if value in TELLING_VALUES else [])]:
                text = ",".join(f"{json.dumps(name)}:{value}" for name in sent)
                yield method, path, {"data": f"{{{text}}}", "content_type": "application/json"}
        for raw in HOSTILE_BODIES:
            yield method, path, {"data": raw, "content_type": "application/json"}


@each_part
def test_no_body_of_the_management_api_fails(everybody: Client, ids: Ids, part: int) -> None:
    found = (
        each
        for template in SCHEMA["paths"]
        if template not in ADMIN_PATHS
        for each in json_tries(template, ids)
    )
    assert failures(everybody, part_of(found, part)) == []


def query_tries(template: str, ids: Ids) -> Iterator[Try]:
    """Yield the reading of an address with each hostile text in each parameter of its query."""
    path = re.sub(r"{(\w+)}", lambda found: ids.get(found[1], "x"), template)
    described = SCHEMA["paths"][template].get("get", {}).get("parameters", [])
    for name in (each["name"] for each in described if each["in"] == "query"):
        for text in [*HOSTILE_TEXTS[2:], base64.b64encode(b"p=x&o=9").decode()]:
            yield "get", path, {"data": {name: text}}


@each_part
def test_nothing_of_the_operators_api_fails(ids: Ids, part: int) -> None:
    let_transaction_last()
    ids = {**ids, **furnish_platform(Variant.objects.get())}
    client = bearer_client(make_token(make_operator())[1], raise_request_exception=False)
    addresses = (
        each
        for route in routes("api")
        if f"/{route.template}".startswith(ADMIN)
        for each in hostile_paths(route, ids)
    )
    bodies = (each for template in ADMIN_PATHS for each in json_tries(template, ids))
    queries = (each for template in ADMIN_PATHS for each in query_tries(template, ids))
    assert failures(client, part_of(chain(addresses, bodies, queries), part)) == []


@pytest.mark.parametrize(
    "kind", ["application/json; charset=nothing", "multipart/form-data; boundary=\xff", "\xff"]
)
def test_no_kind_of_body_fails(everybody: Client, ids: Ids, kind: str) -> None:
    paths = ["/accounts/login/", "/api/v1/organizations", f"/{ids['organization_id']}/api-keys/new"]
    for path in paths:
        reply = everybody.generic("POST", path, b"a=%00", content_type=kind)
        assert reply.status_code < 500


@each_part
def test_nor_with_a_key(org: SeededOrganization, ids: Ids, part: int) -> None:
    _, secret = org.mint(scopes=[Scope.MANAGE])
    client = Client(raise_request_exception=False, headers={"authorization": f"Bearer {secret}"})
    found = (each for route in routes("api") for each in hostile_paths(route, ids))
    assert failures(client, part_of(found, part)) == []


@each_part
def test_no_body_of_the_internal_api_fails(db: None, part: int) -> None:
    bodies = [*HOSTILE_BODIES, *(value.encode() for value in HOSTILE_VALUES)]
    found = [
        ("post", route.path({}), {"data": body, "content_type": "application/json"})
        for route in routes("internal", "stripe")
        for body in bodies
    ]
    for role in ROLES:
        client = Client(raise_request_exception=False, headers=bearer(role))
        assert failures(client, part_of(found, part)) == []


SCIM_FIELDS = ["userName", "name", "active", "externalId", "displayName", "members", "Operations"]
SCIM_FILTERS = ["filter", "startIndex", "count", "attributes", "excludedAttributes"]


@pytest.fixture
def scim(org: SeededOrganization) -> tuple[Client, Ids]:
    """A provider with its token, and whom it knows."""
    let_transaction_last()
    token = create_scim_token(actor=org.actor, organization=org.organization)
    user = ScimUser.objects.create(
        organization=org.organization, user=org.owner, user_name=org.owner.email
    )
    group = ScimGroup.objects.create(organization=org.organization, display_name="IT")
    headers = {"authorization": f"Bearer {token}"}
    client = Client(raise_request_exception=False, headers=headers)
    return client, {"user_id": user.id, "group_id": group.id}


@each_part
def test_no_address_or_filter_of_scim_fails(scim: tuple[Client, Ids], part: int) -> None:
    client, ids = scim
    texts = [*HOSTILE_TEXTS, *(f'userName eq "{text}"' for text in HOSTILE_TEXTS)]

    def tries() -> Iterator[Try]:
        for route in routes("scim"):
            yield from hostile_paths(route, ids)
            for text in texts:
                yield "get", route.path(ids), {"data": dict.fromkeys(SCIM_FILTERS, text)}
                yield "get", route.path(ids), {"data": {"filter": text}}

    assert failures(client, part_of(tries(), part)) == []


def scim_bodies(value: str) -> Iterator[str]:
    """Yield bodies with a hostile value in each field, and in each part of an operation."""
    yield from (f'{{"{name}": {value}}}' for name in SCIM_FIELDS)
    yield f'{{"userName": "x@acme.example", "name": {{"givenName": {value}}}}}'
    yield f'{{"displayName": "x", "members": [{{"value": {value}}}]}}'
    for op, path, set_to in (
        (value, '"active"', "false"), ('"replace"', value, "false"), ('"add"', '"active"', value),
        ('"remove"', '"members"', value), ('"replace"', '"name"', value), ('"add"', "null", value),
    ):  # fmt: skip
        yield f'{{"Operations": [{{"op": {op}, "path": {path}, "value": {set_to}}}]}}'


@each_part
def test_no_body_of_scim_fails(scim: tuple[Client, Ids], part: int) -> None:
    client, ids = scim
    bodies = [*HOSTILE_BODIES, *(f'{{"userName": {value}}}' for value in HOSTILE_VALUES)]
    bodies += [body for value in TELLING_VALUES for body in scim_bodies(value)]
    found = (
        (method, route.path(ids), {"data": body, "content_type": "application/scim+json"})
        for route in routes("scim")
        for method in (("put", "patch") if route.parameters else ("post",))
        for body in bodies
    )
    assert failures(client, part_of(found, part)) == []


@each_part
@pytest.mark.parametrize("protocol", ["oidc", "saml"])
def test_no_answer_of_a_provider_fails(org: SeededOrganization, protocol: str, part: int) -> None:
    """Whatever comes back with a sign-in that was begun here; the provider is out of reach."""
    address = "https://127.0.0.1/x"
    SsoConnection.objects.create(
        organization=org.organization, protocol=protocol, issuer=address, client_id="x",
        sealed_secret=encrypted_secret(org.organization, "x"),
        provider={
            "token_auth": "client_secret_basic", "token_endpoint": address, "jwks_uri": address,
            "entity_id": address, "sso_url": address, "certificates": ["x"],
        },
    )  # fmt: skip
    client = Client(raise_request_exception=False)
    asked = {
        **dict.fromkeys(("state", "nonce", "verifier", "request_id", "next"), "x"),
        "organization_id": org.id, "email": "x@acme.example", "at": int(time.time()),
    }  # fmt: skip

    def tries() -> Iterator[Try]:
        texts = [*HOSTILE_TEXTS, "eDw=", base64.b64encode(b"<a/>" * 9).decode()]
        for text in texts[part::PARTS]:
            for sent in (dict.fromkeys(("code", "error", "state", "iss"), text),
                         {"code": text, "state": "x"}, {"error": text, "state": "x"}):  # fmt: skip
                for method, place in (("get", "callback"), ("post", "acs")):
                    session = client.session
                    session["sso"] = asked
                    session.save()
                    data = {**sent, "SAMLResponse": text, "again": text}
                    yield method, f"/sso/{org.id}/{place}", {"data": data}

    assert failures(client, tries()) == []


def form_fields() -> list[str]:
    """Return the fields of all forms there are, and what views read by name."""
    named = {name for text in sources() for name in POSTED.findall(text)}
    kinds = [forms.Form]
    for kind in kinds:
        kinds += kind.__subclasses__()
        named |= set(kind.base_fields)
    return sorted(named)


@each_part
def test_no_form_fails(everybody: Client, org: SeededOrganization, ids: Ids, part: int) -> None:
    names = form_fields()
    assert {"name", "email", "password"} <= set(names)

    def tries() -> Iterator[Try]:
        own = set(everybody.session.keys())
        for route in routes("console", "accounts", "invitations", "operators", "sso"):
            for text in TELLING_TEXTS[part::PARTS]:
                session = everybody.session
                if "_auth_user_id" not in session:  # one of the forms ends it
                    everybody.force_login(org.owner)
                elif kept := set(session.keys()) - own:  # large, and loaded by each request
                    for name in kept:
                        del session[name]
                    session.save()
                yield "post", route.path(ids), {"data": dict.fromkeys(names, text)}

    assert failures(everybody, tries()) == []


def test_no_form_of_the_admin_fails(everybody: Client, rf: Any, org: SeededOrganization) -> None:
    request = rf.get("/")
    request.user = User.objects.get(id=org.owner.id)

    def tries() -> Iterator[Try]:
        for model, page in admin.site._registry.items():
            place = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
            if page.has_add_permission(request):
                names = page.get_form(request).base_fields
                yield "post", f"{place}add/", {"data": dict.fromkeys(names, "\x00")}
            for action in page.get_actions(request):
                chosen = {"action": action, "_selected_action": "\x00", "index": "0"}
                yield "post", place, {"data": chosen}

    assert failures(everybody, tries()) == []


@pytest.mark.parametrize("headers", quarter(HOSTILE_HEADERS), ids=str)
def test_no_header_fails(everybody: Client, ids: Ids, headers: dict[str, str]) -> None:
    everybody.cookies.clear() if "cookie" in headers else None
    meta = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    kind = {"content_type": meta.pop("HTTP_CONTENT_TYPE", "application/json"), **meta}
    found = (
        (method, path, kind if method == "post" else meta)
        for path in ("/", "/accounts/login/", f"/{ids['organization_id']}/overview", "/admin/",
                     "/api/v1/organizations", "/internal/v1/leases", "/stripe/webhook", "/none",
                     "/static/console/mark.svg")
        for method in ("get", "post")
    )  # fmt: skip
    assert failures(everybody, found) == []


@pytest.fixture
def answer(everybody: Client) -> Callable[[str], tuple[int, str]]:
    """Send JSON to make an organization; return status and code of the answer."""

    def send(text: str) -> tuple[int, str]:
        reply = everybody.post("/api/v1/organizations", text, content_type="application/json")
        return reply.status_code, reply.json().get("error", {}).get("code")

    return send


def test_what_cannot_be_stored_is_said(answer: Callable[[str], tuple[int, str]]) -> None:
    assert answer('{"name": "\\ud800"}') == (400, "parse_error")
    assert answer('{"name": "a\\u0000b"}') == (400, "invalid_value")
    assert answer('{"name": ' + "[" * DEEP + "]" * DEEP + "}") == (400, "parse_error")
    assert answer('{"name": "Large"}'.ljust(BODY_BYTES_MAX)) == (201, None)
    assert answer('{"name": "Large"}'.ljust(BODY_BYTES_MAX + 1)) == (413, "request_too_large")
    assert answer('{"name": "\\ud83d\\udca3"}') == (201, None)
