"""A client that a tool generates from the OpenAPI document works as it is: it reads every list,
page by page, from a running control, and whatever is answered was told in the document."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connections
from django.utils import timezone

from billing.credit.models import GrantKind
from billing.credit.services.grants import grant_credit
from control.api_keys.models import Scope
from control.asgi import application
from tests.fixtures.furnished import furnish
from tests.fixtures.generated_client import GeneratedClient, untold
from tests.fixtures.openapi import openapi_document
from tests.fixtures.operator_tokens import make_operator, make_token
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import in_place_of_stripe
from tests.fixtures.serving import serving

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("generated_client"),
]
DOCUMENT = openapi_document()
ALL_LISTS = sorted(
    operation["get"]["operationId"]
    for operation in DOCUMENT["paths"].values()
    if "get" in operation and operation["get"]["operationId"].endswith("_list")
)
OPERATORS_LISTS = [name for name in ALL_LISTS if name.startswith("admin_")]
LISTS = [name for name in ALL_LISTS if name not in OPERATORS_LISTS]
FILES = ("/pdf", ".csv", ".jsonl")
"""How addresses end whose answers are files, of kinds that such a tool has no types for."""
EMPTY = {"credit_grants_list", "invoices_list"}
"""What the organization of the test has none of."""
Read = Callable[..., Any]


@pytest.fixture
def ids(
    org: SeededOrganization, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    with in_place_of_stripe(settings, monkeypatch) as double:
        org.mint(name="Another")
        yield furnish(org, double)


@pytest.fixture
def client(made: GeneratedClient, org: SeededOrganization, ids: dict[str, str]) -> Iterator[Any]:
    """The generated client, at a running control, with a key."""
    _, secret = org.mint(scopes=[Scope.MANAGE])
    with serving(application) as address, made.signed_in(address, secret) as client:
        yield client
    connections.close_all()


@pytest.fixture
def operator(made: GeneratedClient, ids: dict[str, str]) -> Iterator[Any]:
    """The generated client, at a running control, with an operator token."""
    _, secret = make_token(make_operator())
    with serving(application) as address, made.signed_in(address, secret) as client:
        yield client
    connections.close_all()


def test_nothing_is_left_out_but_files(made: GeneratedClient) -> None:
    assert [line for line in made.left_out if not any(end in line for end in FILES)] == []


def test_every_list_is_read_page_by_page(
    made: GeneratedClient, client: Any, ids: dict[str, str]
) -> None:
    assert len(LISTS) >= 13
    for name in LISTS:
        check_list(made, client, name, ids)


def test_every_list_of_operators_is_read_page_by_page(
    made: GeneratedClient, operator: Any, org: SeededOrganization, ids: dict[str, str]
) -> None:
    grant_credit(
        organization_id=org.id, kind=GrantKind.PROMOTIONAL, amount_nanos=1, actor=OPERATOR,
        idempotency_key="first", reason="", now=timezone.now(),
    )  # fmt: skip
    assert len(OPERATORS_LISTS) >= 8
    for name in OPERATORS_LISTS:
        check_list(made, operator, name, ids)


def check_list(made: GeneratedClient, client: Any, name: str, ids: dict[str, str]) -> None:
    read = made.operation(name)
    wanted = {
        each: ids[each]
        for each, parameter in inspect.signature(read).parameters.items()
        if each in ids and parameter.default is parameter.empty
    }
    reply = read(client=client, **wanted)
    assert reply.status_code == 200, name
    assert untold(reply.parsed) == [], name
    assert bool(reply.parsed.data) == (name not in EMPTY), name
    assert list(one_by_one(read, client, wanted)) == reply.parsed.data, name


def one_by_one(read: Read, client: Any, wanted: dict[str, str]) -> Iterator[Any]:
    """Yield the rows of pages with one row each."""
    following: dict[str, str] = {}
    while True:
        page = read(client=client, limit=1, **wanted, **following).parsed
        assert len(page.data) <= 1
        yield from page.data
        if page.next_ is None:
            return
        following = {"after": parse_qs(urlsplit(page.next_).query)["after"][0]}


def test_a_refusal_is_read_too(made: GeneratedClient, client: Any) -> None:
    reply = made.operation("api_keys_list")(client=client, organization_id="org_none")
    assert reply.status_code == 404
    assert reply.parsed.error.code == "not_found"
    assert reply.parsed.error.param is None
