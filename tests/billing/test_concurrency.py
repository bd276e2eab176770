"""Money under real concurrency: threads with connections of their own, and connections that die."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest
from django.db import Error, connection

from billing.credit.models import Budget, CreditGrant, Lease, Payment
from billing.credit.selectors import available_nanos, balance_nanos, recalled_lease_ids
from billing.credit.services import budgets, grants, leases
from billing.credit.services.adjustments import refund
from billing.credit.services.grants import expire_grants
from billing.credit.services.leases import answer, charge, grant_leases, void_abandoned_leases
from billing.credit.services.payments import record_payment
from billing.metering import ingest as ingesting
from billing.metering.ingest import ingest
from billing.metering.models import UsageEvent
from control.audit.models import AuditEvent
from control.errors import Conflict
from control.feed.database_identity import database_id
from control.limits.models import SpendingLimit
from control.organizations.models import BillingMode, Organization
from control.organizations.services import set_organization_terms
from control.permissions import Actor
from serving.contract.budget import balance_budget_id, limit_budget_id
from serving.contract.ids import new_id
from serving.contract.lease import (
    Answer,
    LeaseAsk,
    LeaseDeferral,
    LeaseDenial,
    LeaseGrant,
    LeaseRequest,
    LeaseReturn,
)
from tests.fixtures import database
from tests.fixtures.books import differences
from tests.fixtures.usage import (
    GATEWAY,
    NOW,
    Customer,
    ask_for,
    give_credit,
    make_batch,
    make_customer,
    make_event,
    make_price,
    with_lease,
)
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
OPERATOR = Actor.for_system("tests")
THREADS = 16
LONG_MILLISECONDS = 20_000
"""Far longer than anything here takes: what waits for a row shows."""
WAITING = """
SELECT EXISTS (SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


def at_once(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Run every call in a thread of its own, all released at one moment."""
    calls = list(calls)
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            barrier.wait()
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def ask_until_answered(ask: LeaseAsk, gateway: str) -> Answer:
    """Ask as a gateway does: what is deferred is asked again, and waited for then."""
    for _ in range(100):
        (reply,) = grant_leases(gateway_id=gateway, asks=[ask], lineage=database_id(), now=NOW)
        if not isinstance(reply, LeaseDeferral):
            return reply
        ask = LeaseAsk(
            ask.ask_id, ask.budget_id, ask.need_nanos, ask.want_nanos, ask.at, deferred=True
        )
    raise AssertionError("never answered")


@contextmanager
def held_elsewhere(*budget_ids: str) -> Iterator[None]:
    """Hold the rows of budgets in a transaction of another connection."""
    query = "SELECT FROM credit_budget WHERE budget_id = ANY(%s) FOR UPDATE"
    with psycopg.connect(database.owner_url()) as other:
        other.execute(query, [list(budget_ids)])
        yield


def somebody_waits() -> bool:
    with psycopg.connect(database.superuser_url(), autocommit=True) as other:
        return other.execute(WAITING).fetchone() == (True,)


def asker(customer: Customer, number: int) -> Callable[[], list[Answer]]:
    """Return thirteen asks of one thread, each for a third of the money."""

    def ask() -> list[Answer]:
        gateway = f"gw_{number % 2}"
        asks = (LeaseAsk(new_id(), customer.balance, 1_000, 1_000, NOW) for _ in range(13))
        return [ask_until_answered(one, gateway) for one in asks]

    return ask


def test_a_budget_for_three_admits_three_of_two_hundred(customer):
    """16 threads of two gateways ask 13 times each."""
    give_credit(customer, 3_000)
    answers = at_once(asker(customer, number) for number in range(THREADS))
    kinds = Counter(type(one) for each in answers for one in each)
    assert kinds == {LeaseGrant: 3, LeaseDenial: THREADS * 13 - 3}
    assert available_nanos(customer.organization, NOW) == 0
    assert differences() == []


def test_one_ask_sent_many_times_at_once_is_granted_once(customer):
    give_credit(customer, 3_000)
    ask = LeaseAsk("ask_1", customer.balance, 1_000, 1_000, NOW)
    answers = at_once([lambda: ask_until_answered(ask, GATEWAY)] * 8)
    assert len({one.lease_id for one in answers}) == 1
    assert available_nanos(customer.organization, NOW) == 2_000


def test_one_ask_id_of_two_gateways_at_once_is_granted_once_and_harms_nobody(customer, outsider):
    for one in (customer, outsider):
        give_credit(one, 3_000)
    calls = [
        lambda gateway=f"gw_{number}", budget=one.balance: grant_leases(
            gateway_id=gateway,
            asks=[LeaseAsk("ask_1", budget, 1, 1, NOW)],
            lineage=database_id(),
            now=NOW,
        )
        for number in range(4)
        for one in (customer, outsider)
    ]
    answers = [one for each in at_once(calls) for one in each]
    assert len([one for one in answers if isinstance(one, LeaseGrant)]) >= 1
    assert Lease.objects.count() == 1
    assert differences() == []


# A busy row


def test_a_busy_budget_is_deferred_and_its_neighbours_are_answered_at_once(
    customer, outsider, monkeypatch
):
    monkeypatch.setattr(leases, "WAIT_MILLISECONDS", LONG_MILLISECONDS)
    for one in (customer, outsider):
        give_credit(one, 1_000)
    asks = [LeaseAsk(new_id(), one.balance, 10, 10, NOW) for one in (customer, outsider)]
    with held_elsewhere(customer.balance):
        began = time.monotonic()
        reply = answer(LeaseRequest(GATEWAY, NOW, asks=tuple(asks)), now=NOW)
        assert time.monotonic() - began < LONG_MILLISECONDS / 1_000
    assert [type(one) for one in reply.answers] == [LeaseDeferral, LeaseGrant]


def test_a_budget_that_was_busy_is_waited_for_a_moment(customer):
    give_credit(customer, 1_000)
    again = LeaseAsk(new_id(), customer.balance, 10, 10, NOW, deferred=True)
    with held_elsewhere(customer.balance):
        began = time.monotonic()
        reply = answer(LeaseRequest(GATEWAY, NOW, asks=(again,)), now=NOW)
        assert time.monotonic() - began > 0.19
    assert isinstance(reply.answers[0], LeaseDeferral)
    assert isinstance(ask_until_answered(again, GATEWAY), LeaseGrant)


def test_a_budget_that_is_free_in_time_is_granted_while_it_is_waited_for(customer, monkeypatch):
    monkeypatch.setattr(leases, "WAIT_MILLISECONDS", LONG_MILLISECONDS)
    give_credit(customer, 1_000)
    again = LeaseAsk(new_id(), customer.balance, 10, 10, NOW, deferred=True)
    with ThreadPoolExecutor(1) as threads:
        with held_elsewhere(customer.balance):
            asking = threads.submit(at_once, [lambda: ask_until_answered(again, GATEWAY)])
            wait_until(somebody_waits, seconds=60, what="the budget waited for")
        assert isinstance(asking.result()[0], LeaseGrant)


def test_a_return_to_a_busy_budget_comes_again(customer, outsider):
    for one in (customer, outsider):
        give_credit(one, 1_000)
    granted = [ask_for(one.balance, 600) for one in (customer, outsider)]
    returns = tuple(LeaseReturn(lease.lease_id, 0, True) for lease in granted)
    request = LeaseRequest(GATEWAY, NOW, returns=returns)
    with held_elsewhere(customer.balance):
        assert answer(request, now=NOW).returned == (granted[1].lease_id,)
    assert answer(request, now=NOW).returned == tuple(lease.lease_id for lease in granted)
    assert differences() == []


def test_a_batch_holds_the_budgets_of_a_part_at_a_time(customer, outsider, price, monkeypatch):
    """The second customer's part waits for somebody; the first customer's is booked and free."""
    monkeypatch.setattr(ingesting, "PART_EVENTS", 2)
    first, second = sorted((customer, outsider), key=lambda one: one.id)
    for one in (first, second):
        give_credit(one, 10**9)
    batch = make_batch(make_event(one, price) for one in (second, first) * 2)
    with ThreadPoolExecutor(1) as threads:
        with held_elsewhere(second.balance):
            booking = threads.submit(at_once, [lambda: ingest(batch, now=NOW)])
            wait_until(
                lambda: balance_nanos(first.id) == 10**9 - 2 * 132_000,
                seconds=60,
                what="the first part booked",
            )
            asks = [LeaseAsk(new_id(), one.balance, 10, 10, NOW) for one in (first, second)]
            reply = answer(LeaseRequest(GATEWAY, NOW, asks=tuple(asks)), now=NOW)
            assert [type(one) for one in reply.answers] == [LeaseGrant, LeaseDeferral]
            assert not booking.done()
        assert booking.result()[0].accepted == 4
    assert differences() == []


def test_recurring_work_passes_by_a_busy_balance(customer, outsider, monkeypatch):
    for beat in (leases, grants):
        monkeypatch.setattr(beat, "BEAT_WAIT_MILLISECONDS", 20)
    for one in (customer, outsider):
        give_credit(one, 1_000, expires_at=NOW)
        ask_for(one.balance, 600, now=NOW + timedelta(minutes=1))
    later = NOW + timedelta(days=2)
    with held_elsewhere(customer.balance):
        assert void_abandoned_leases(now=later) == 1
        assert expire_grants(now=later) == 1
    assert void_abandoned_leases(now=later) == 1
    assert expire_grants(now=later) == 1


def test_a_row_that_somebody_else_is_making_holds_up_nobody(customer, outsider):
    """The first ask for a new period meets another transaction that has just begun it."""
    give_credit(outsider, 1_000)
    new = LeaseAsk(new_id(), limit_budget_id(customer.id), 10, 10, NOW)
    beside = LeaseAsk(new_id(), outsider.balance, 10, 10, NOW)
    insert = """
        INSERT INTO credit_budget (budget_id, kind, organization_id, starts_at, ends_at,
            posted_nanos, pending_nanos, funded_nanos)
        VALUES (%s, 'organization', %s, '2026-11-01Z', '2026-12-01Z', 0, 0, 0)
    """
    with psycopg.connect(database.owner_url()) as other:
        other.execute(insert, [new.budget_id, customer.id])
        reply = answer(LeaseRequest(GATEWAY, NOW, asks=(new, beside)), now=NOW)
    assert [type(one) for one in reply.answers] == [LeaseDeferral, LeaseGrant]
    assert isinstance(ask_until_answered(new, GATEWAY), LeaseGrant)


# Cold starts


def test_hundreds_of_organizations_begin_cold_in_two_polls():
    """400 organizations, their balance and their month: 800 asks of which none had a row."""
    owners = Organization.objects.bulk_create(
        Organization(name=f"cold {number}", billing_mode=BillingMode.POSTPAID)
        for number in range(400)
    )
    asks = [
        LeaseAsk(new_id(), name, 10, 10, NOW)
        for owner in owners
        for name in (balance_budget_id(owner.id), limit_budget_id(owner.id))
    ]
    halves = (tuple(asks[:400]), tuple(asks[400:]))
    replies = at_once(
        lambda half=half: answer(LeaseRequest(GATEWAY, NOW, asks=half), now=NOW) for half in halves
    )
    assert {type(one) for reply in replies for one in reply.answers} == {LeaseGrant}
    assert Budget.objects.count() == 800
    assert differences() == []


def test_two_gateways_begin_cold_on_the_same_organizations():
    owners = [make_customer(f"cold {number}") for number in range(30)]
    for one in owners:
        give_credit(one, 1_000)

    def begin(gateway: str) -> list[Answer]:
        asks = [LeaseAsk(new_id(), one.balance, 10, 10, NOW) for one in owners]
        return [ask_until_answered(one, gateway) for one in asks]

    answers = at_once(lambda gateway=f"gw_{n}": begin(gateway) for n in range(4))
    assert {type(one) for each in answers for one in each} == {LeaseGrant}
    assert {row.pending_nanos for row in Budget.objects.all()} == {40}


# Asks, charges, limits and money at once


def test_asks_and_ingest_together_never_overspend(customer, price):
    give_credit(customer, 10 * 132_000)
    spent = [ask_for(customer.balance, 132_000) for _ in range(5)]
    batches = [make_batch([with_lease(make_event(customer, price), x.lease_id)]) for x in spent]
    calls: list[Any] = [lambda batch=batch: ingest(batch, now=NOW) for batch in batches]
    asks = [LeaseAsk(new_id(), customer.balance, 132_000, 132_000, NOW) for _ in range(10)]
    calls += [lambda ask=ask: ask_until_answered(ask, GATEWAY) for ask in asks]
    granted = [one for one in at_once(calls) if isinstance(one, LeaseGrant)]
    assert len(granted) == 5
    assert available_nanos(customer.organization, NOW) == 0
    assert balance_nanos(customer.id) == 5 * 132_000
    assert differences() == []


def test_a_limit_lowered_in_mid_traffic_is_never_passed_afterwards(customer):
    """Of 1,000,000 a limit of 300 is left while four threads ask for 100 each, again and again."""
    now = datetime.now(UTC)

    def limit(nanos: int) -> None:
        set_organization_terms(
            actor=OPERATOR, organization=customer.organization, billing_mode="postpaid",
            spend_limit_nanos=nanos, weight=1,
        )  # fmt: skip

    def ask() -> None:
        for _ in range(20):
            one = LeaseAsk(new_id(), limit_budget_id(customer.id), 100, 100, now)
            grant_leases(gateway_id=GATEWAY, asks=[one], lineage=database_id(), now=now)

    limit(1_000_000)
    at_once([ask, ask, ask, ask, lambda: limit(300)])
    row = Budget.objects.get(kind="organization", starts_at__lte=now, ends_at__gt=now)
    assert row.limit_nanos == 300
    before = row.pending_nanos
    ask()
    row.refresh_from_db()
    assert row.pending_nanos <= max(before, 300)
    if before > 300:
        assert len(recalled_lease_ids(GATEWAY, database_id())) == before // 100
    assert differences() == []


def test_limits_and_charges_of_the_same_budgets_never_wait_for_each_other_in_a_ring(customer):
    """A month's row older than the balance's: set in the order of names they would."""
    month, balance = (
        budgets.open_budgets([budgets.key_at(name, NOW)])[budgets.key_at(name, NOW)]
        for name in (limit_budget_id(customer.id), customer.balance)
    )
    assert month < balance

    def limit() -> None:
        for _ in range(15):
            limits = {customer.balance: 10**9, limit_budget_id(customer.id): 10**9}
            budgets.set_limits(limits, now=NOW)

    def spend() -> None:
        for _ in range(15):
            charge({balance: 1, month: 1}, {})

    at_once([limit, spend, limit, spend])
    assert set(Budget.objects.values_list("posted_nanos", flat=True)) == {30}


def test_one_batch_sent_twice_at_once_is_booked_once(customer, price):
    batch = make_batch(make_event(customer, price) for _ in range(50))
    receipts = at_once([lambda: ingest(batch, now=NOW)] * 4)
    assert sum(receipt.accepted for receipt in receipts) == 50
    assert sum(receipt.duplicates for receipt in receipts) == 150
    assert balance_nanos(customer.id) == -50 * 132_000


def writer(customers: list[Customer], price: Any, seed: int) -> int:
    rng = random.Random(seed)
    accepted = 0
    for _ in range(6):
        events = [make_event(rng.choice(customers), price) for _ in range(40)]
        accepted += ingest(make_batch(events), now=NOW).accepted
    return accepted


def test_eight_writers_of_overlapping_organizations_lose_nothing(price):
    customers = [make_customer(f"organization {number}") for number in range(5)]
    accepted = at_once(lambda seed=seed: writer(customers, price, seed) for seed in range(8))
    assert sum(accepted) == 8 * 6 * 40 == UsageEvent.objects.count()
    assert sum(balance_nanos(one.id) for one in customers) == -8 * 6 * 40 * 132_000


# Once, whoever does it


def test_a_double_submit_at_once_grants_once(customer):
    given = at_once([lambda: give_credit(customer, 500, idempotency_key="form-1")] * 6)
    assert len({grant.id for grant in given}) == 1
    assert balance_nanos(customer.id) == 500


def money(verb: Any, customer: Customer, nanos: int, key: str) -> Any:
    try:
        return verb(
            organization_id=customer.id, amount_nanos=nanos, idempotency_key=key, actor=OPERATOR,
            reason="test", now=NOW,
        )  # fmt: skip
    except Conflict as error:
        return error


def test_a_payment_recorded_many_times_at_once_is_one(customer):
    paid = at_once([lambda: money(record_payment, customer, 500, "form-1")] * 6)
    assert len({payment.id for payment in paid}) == Payment.objects.count() == 1
    assert balance_nanos(customer.id) == 500


def test_refunds_at_once_never_pay_back_more_than_there_is(customer):
    give_credit(customer, 250)
    calls = [lambda key=f"form-{n}": money(refund, customer, 100, key) for n in range(6)]
    assert sum(isinstance(one, Conflict) for one in at_once(calls)) == 4
    assert balance_nanos(customer.id) == 50


def test_two_beats_expire_a_grant_once(customer):
    give_credit(customer, 500, expires_at=NOW)
    assert sum(at_once([lambda: expire_grants(now=NOW)] * 4)) == 1
    assert CreditGrant.objects.get().remaining_nanos == 0


def test_two_beats_void_a_lease_once(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 600)
    later = lease.admits_until + timedelta(days=1)
    assert sum(at_once([lambda: void_abandoned_leases(now=later)] * 4)) == 1
    assert AuditEvent.objects.filter(action="lease.void").count() == 1
    assert Lease.objects.get().held_nanos == 0
    assert differences() == []


class Cut:
    """Closes the connection under the statement whose turn it is."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        self.seen += 1
        if self.seen == self.at:
            context["connection"].connection.close()
        return execute(sql, params, many, context)


def got_through(call: Callable[[], Any], at: int) -> bool:
    """Return whether a call got through before statement `at`, where its connection dies."""
    cut = Cut(at)
    try:
        with connection.execute_wrapper(cut):
            call()
    except Error:
        connection.close()
        return False
    return cut.seen < at


def test_a_connection_that_dies_at_any_statement_loses_and_doubles_nothing(customer, price):
    give_credit(customer, 10**9)
    lease = ask_for(customer.balance, 10**8)
    events = [with_lease(make_event(customer, price), lease.lease_id) for _ in range(3)]
    batch = make_batch([*events, b'{"schema": 9}'])
    for statement in range(1, 100):
        if got_through(lambda: ingest(batch, now=NOW), statement):
            break
        assert UsageEvent.objects.count() in (0, 3)
        assert differences() == []
    assert statement > 5
    assert UsageEvent.objects.count() == 3
    assert balance_nanos(customer.id) == 10**9 - 3 * 132_000


def test_a_poll_cut_at_any_statement_is_repeated_to_the_same_end(customer):
    give_credit(customer, 10**9)
    lease = ask_for(customer.balance, 600)
    asks = (LeaseAsk("ask_1", customer.balance, 100, 100, NOW),)
    request = LeaseRequest(GATEWAY, NOW, asks=asks, returns=(LeaseReturn(lease.lease_id, 0, True),))
    for statement in range(1, 50):
        if got_through(lambda: answer(request, now=NOW), statement):
            break
        assert differences() == []
    assert statement > 3
    assert Budget.objects.get().pending_nanos == 100


def test_a_day_opened_in_the_midst_of_ingest_misses_nothing_and_counts_nothing_twice() -> None:
    """Eight batches of ten requests at 132,000 nanos, while eight gateways ask for the day."""
    customer, price, now = make_customer("Acme"), make_price(), datetime.now(UTC)
    give_credit(customer, 10**12, now=now)
    name = limit_budget_id(customer.id, "day")
    SpendingLimit.objects.create(
        budget_id=name, organization=customer.organization, limited_id=customer.id,
        period="day", limit_nanos=10**11, is_hard=True,
    )  # fmt: skip
    batches = [
        make_batch(make_event(customer, price, received_at=now) for _ in range(10))
        for _ in range(8)
    ]
    asks = [LeaseAsk(new_id(), name, 1, 1, datetime.now(UTC)) for _ in range(8)]
    books = [lambda batch=batch: ingest(batch, now=now) for batch in batches]
    opens = [
        lambda ask=ask: grant_leases(gateway_id=GATEWAY, asks=[ask], lineage=database_id(), now=now)
        for ask in asks
    ]
    at_once([*books, *opens])
    if Budget.objects.filter(budget_id=name).first() is None:
        grant_leases(gateway_id=GATEWAY, asks=asks[:1], lineage=database_id(), now=now)
    assert Budget.objects.get(budget_id=name).posted_nanos == 80 * 132_000
    assert differences() == []
