"""The calls of gateways: contract records in, contract records out, behind their credentials."""

from datetime import timedelta

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from billing.metering.models import UsageEvent
from serving.contract.ids import new_id
from serving.contract.lease import LeaseAsk, LeaseReply, LeaseRequest
from serving.contract.usage import EVENTS_MAX, UsageReceipt
from tests.fixtures.credentials import bearer
from tests.fixtures.usage import GATEWAY, give_credit, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LEASES = "/internal/v1/leases"
EVENTS = "/internal/v1/usage-events"


def post(path, body):
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Client(headers=bearer("gateway")).post(path, data, content_type="application/json")


def test_a_gateway_asks_for_money(customer):
    give_credit(customer, 10**9)
    now = timezone.now()
    asked = LeaseRequest(GATEWAY, now, asks=(LeaseAsk(new_id(), customer.balance, 10, 10, now),))
    answer = msgspec.json.decode(post(LEASES, asked).content, type=LeaseReply)
    assert answer.answers[0].granted_nanos == 10


@pytest.mark.parametrize("off", [timedelta(minutes=6), -timedelta(hours=25)])
def test_a_gateway_that_lives_at_another_time_is_told_so(off):
    answer = post(LEASES, LeaseRequest(GATEWAY, timezone.now() + off))
    assert answer.status_code == 409
    assert answer.json()["error"].startswith("clock_")


@pytest.mark.parametrize(
    "absurd",
    [{"need_nanos": -1}, {"want_nanos": 2**63}, {"budget_id": "x y"}, {"at": "2026-11-21"},
     {"ask_id": ""}],
)  # fmt: skip
def test_an_absurd_ask_is_refused_by_name(customer, absurd):
    ask = msgspec.to_builtins(LeaseAsk("ask_1", customer.balance, 1, 1, timezone.now())) | absurd
    body = msgspec.to_builtins(LeaseRequest(GATEWAY, timezone.now())) | {"asks": [ask]}
    answer = post(LEASES, body)
    assert answer.status_code == 400
    assert next(iter(absurd)) in answer.json()["error"]


def test_a_gateway_ships_a_full_batch(customer, price):
    event = make_event(customer, price, received_at=timezone.now())
    answer = post(EVENTS, make_batch([event] * EVENTS_MAX))
    receipt = msgspec.json.decode(answer.content, type=UsageReceipt)
    assert (receipt.accepted, receipt.duplicates) == (1, EVENTS_MAX - 1)
    assert UsageEvent.objects.count() == 1


def test_more_than_a_batch_is_refused(customer, price):
    answer = post(EVENTS, make_batch([make_event(customer, price)] * (EVENTS_MAX + 1)))
    assert answer.status_code == 400


@pytest.mark.parametrize("path", [LEASES, EVENTS])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"gateway_id": 7}'])
def test_a_body_that_is_no_record_is_refused_by_name(path, body):
    answer = post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(("LeaseRequest", "UsageBatch"))


@pytest.mark.parametrize("path", [LEASES, EVENTS])
def test_only_post_is_served(path):
    assert Client(headers=bearer("gateway")).get(path).status_code == 405


@pytest.mark.parametrize("path", [LEASES, EVENTS])
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_without_a_credential_nothing_is_served(path, headers):
    assert Client(headers=headers).post(path, b"{}", content_type="text/plain").status_code == 401
