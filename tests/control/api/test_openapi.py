"""The management API is as its OpenAPI document says, with a key that may do everything and for an
owner in a browser: no operation fails, none answers what is not told, and no refused change leaves
anything behind. Tried with what the document allows and with what it does not."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from django import conf
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pytest_django import DjangoDbBlocker
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi import checks

from control.api_keys.models import Scope
from tests.fixtures.corpus import quarter
from tests.fixtures.database import let_transaction_last
from tests.fixtures.furnished import furnish
from tests.fixtures.openapi import openapi_document
from tests.fixtures.operations import ADMIN, ORGANIZATION, QUERIES, Ids, body_of, told_in
from tests.fixtures.operator_tokens import make_operator, make_token
from tests.fixtures.organizations import make_organization
from tests.fixtures.paying import in_place_of_stripe
from tests.simulation.stripe_double import StripeDouble

pytestmark = pytest.mark.integration
load_all_checks()
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
TRIES = settings(
    max_examples=14,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
DOCUMENT = openapi_document()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
SCHEMA.app = get_wsgi_application()
SCHEMA.config.generation.with_security_parameters = False  # callers bring their own
OPERATIONS = {each.ok().label: each.ok() for each in SCHEMA.get_all_operations()}
CHANGES = [label for label in OPERATIONS if label.startswith("PATCH ")]
REFUSED = {
    "POST /api/v1/invitations/accept",
    f"GET {ORGANIZATION}/invoices/{{invoice_id}}",
    f"GET {ORGANIZATION}/invoices/{{invoice_id}}/pdf",
    f"DELETE {ORGANIZATION}",  # money is under way
}
"""What there is nothing for; all else is done at least once."""
WRONG = [{"bad": []}, " ", ["x"], -1, "2020-01-01T00:00:00Z", "\x00", [], 10**30]
CSRF = "c" * 32


@dataclass(frozen=True)
class Place:
    """An organization that has one of most things, by the names that parameters have, and the head
    and cookies of who may do everything there: a key, and the owner; and an operator token."""

    ids: Ids
    key: dict[str, Any]
    owner: dict[str, Any]
    token: dict[str, Any]

    def callers(self, label: str) -> list[dict[str, Any]]:
        """Return who may call an operation."""
        return [self.token] if ADMIN in label else [self.key, self.owner]


@pytest.fixture(scope="module")
def place(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Place]:
    """Made once: whatever is tried in it is taken back."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)  # would end the transaction around a request
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(conf.settings, "CONFIG", conf.settings.CONFIG)
        double = stack.enter_context(in_place_of_stripe(conf.settings, patch))
        stack.enter_context(django_db_blocker.unblock())
        stack.enter_context(undone())
        let_transaction_last()
        yield make_place(double)
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def make_place(double: StripeDouble) -> Place:
    org, client = make_organization(), Client()
    client.force_login(org.owner)
    cookies = {"penstock_session": client.cookies["penstock_session"].value, "csrftoken": CSRF}
    _, secret = org.mint(scopes=list(Scope))
    plain = {"accept-encoding": "identity"}
    return Place(
        ids=furnish(org, double),
        key={"headers": plain | {"authorization": f"Bearer {secret}"}},
        owner={"headers": plain | {"x-csrftoken": CSRF}, "cookies": cookies},
        token={"headers": plain | {"authorization": f"Bearer {make_token(make_operator())[1]}"}},
    )


@contextmanager
def undone() -> Iterator[None]:
    """Take back what is done inside."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def cases(label: str, ids: Ids) -> st.SearchStrategy[Case]:
    """Return calls of an operation: as the document says, of what there is and of what there is
    not; and with bodies that it does not allow."""
    operation, told = OPERATIONS[label], told_in(label, ids)
    found = [operation.as_strategy(path_parameters=told).map(at_home), operation.as_strategy()]
    if operation.body:
        found.append(operation.as_strategy(GenerationMode.NEGATIVE, path_parameters=told))
    return st.one_of(found)


def plain(label: str, ids: Ids) -> Case:
    """Return a call as a person would make it."""
    body = body_of(label, ids)
    operation = OPERATIONS[label]
    return operation.Case(
        path_parameters={"invoice_id": "x"} | told_in(label, ids),
        headers={"Idempotency-Key": "once"},
        query=dict(QUERIES.get(label, {})),
        **({"body": body, "media_type": "application/json"} if operation.body else {}),
    )


def at_home(case: Case) -> Case:
    """Let a call concern the caller's own organization."""
    case.query.pop("organization_id", None)
    return case


@pytest.mark.parametrize("label", quarter(OPERATIONS))
def test_every_answer_is_told(label: str, place: Place) -> None:
    statuses: list[int] = []

    def call(case: Case, caller: dict[str, Any]) -> None:
        with undone():
            statuses.append(case.call_and_validate(checks=CHECKS, **caller).status_code)

    for caller in place.callers(label):
        call(plain(label, place.ids), caller)
    assert (min(statuses) < 300) == (label not in REFUSED), statuses
    callers = st.sampled_from(place.callers(label))
    TRIES(given(case=cases(label, place.ids), caller=callers)(call))()


def test_there_are_changes() -> None:
    assert len(CHANGES) >= 10


@pytest.mark.parametrize("label", quarter(CHANGES))
def test_a_refused_change_leaves_nothing_behind(label: str, place: Place) -> None:
    operation = OPERATIONS[label]
    reading = OPERATIONS.get(f"GET {operation.path}")
    told = {name: place.ids.get(name, "x") for name in re.findall(r"{(\w+)}", label)}
    caller = place.callers(label)[0]

    def shown() -> bytes:
        return reading.Case(path_parameters=told).call(**caller).content if reading else b""

    @TRIES
    @given(body=bodies(operation))
    def tries(body: dict[str, Any]) -> None:
        with undone():
            before = shown()
            reply: Response = operation.Case(
                path_parameters=told, body=body, media_type="application/json"
            ).call(**caller)
            assert reply.status_code < 300 or shown() == before

    tries()


def bodies(operation: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Return bodies that are right but for one field."""
    content = DOCUMENT["paths"][operation.path]["patch"]["requestBody"]["content"]
    name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
    names = sorted(DOCUMENT["components"]["schemas"][name]["properties"])
    right = operation.as_strategy().map(lambda case: case.body)
    wrong = st.dictionaries(st.sampled_from(names), st.sampled_from(WRONG), min_size=1, max_size=1)
    return st.builds(lambda body, change: {**body, **change}, right.filter(is_object), wrong)


def is_object(body: object) -> bool:
    return isinstance(body, dict)
