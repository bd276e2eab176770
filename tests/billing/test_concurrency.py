"""Money under real concurrency: threads with connections of their own, and connections that die."""

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import Error, connection

from billing.credit.limits import available_nanos
from billing.credit.models import CreditGrant, Lease
from billing.credit.selectors import balance
from billing.credit.services.grants import expire_grants
from billing.credit.services.leases import void_abandoned_leases
from billing.metering.ingest import ingest
from billing.metering.models import HourRollup, UsageEvent
from control.audit.models import Entry
from serving.contract.lease import Granted
from tests.support.usage import (
    NOW,
    ask_for,
    broken_promises,
    give_credit,
    make_batch,
    make_customer,
    make_event,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


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


def test_a_budget_for_three_admits_three_of_many(customer):
    give_credit(customer, 3_000)
    answers = [
        one
        for _ in range(4)
        for one in at_once(
            lambda gateway=f"gw_{number % 2}": ask_for(customer.id, 1_000, gateway=gateway)
            for number in range(15)
        )
    ]
    assert sum(isinstance(one, Granted) for one in answers) == 3
    assert available_nanos(customer.id, NOW) == 0


def test_asks_and_ingest_together_never_overspend(customer, price):
    give_credit(customer, 10 * 132_000)
    spent = [ask_for(customer.id, 132_000) for _ in range(5)]
    batches = [make_batch([with_lease(make_event(customer, price), x.lease_id)]) for x in spent]
    calls = [lambda batch=batch: ingest(batch, now=NOW) for batch in batches]
    calls += [lambda: ask_for(customer.id, 132_000)] * 10
    granted = [one for one in at_once(calls) if isinstance(one, Granted)]
    assert len(granted) == 5
    assert available_nanos(customer.id, NOW) == 0
    assert broken_promises() == []


def test_one_batch_sent_twice_at_once_is_booked_once(customer, price):
    batch = make_batch(make_event(customer, price) for _ in range(50))
    receipts = at_once([lambda: ingest(batch, now=NOW)] * 4)
    assert sum(receipt.accepted for receipt in receipts) == 50
    assert sum(receipt.duplicates for receipt in receipts) == 150
    assert balance(customer.organization, NOW) == -50 * 132_000
    assert broken_promises() == []


def writer(customers, price, seed):
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
    assert sum(HourRollup.objects.values_list("request_count", flat=True)) == 8 * 6 * 40
    assert broken_promises() == []


def test_a_double_submit_at_once_grants_once(customer):
    grants = at_once([lambda: give_credit(customer, 500, idempotency_key="form-1")] * 6)
    assert len({grant.id for grant in grants}) == 1
    assert balance(customer.organization, NOW) == 500


def test_two_beats_expire_a_grant_once(customer):
    give_credit(customer, 500, expires_at=NOW)
    assert sum(at_once([lambda: expire_grants(now=NOW)] * 4)) == 1
    assert CreditGrant.objects.get().remaining_nanos == 0
    assert broken_promises() == []


def test_two_beats_void_a_lease_once(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.id, 600)
    later = lease.expires_at + timedelta(days=1)
    assert sum(at_once([lambda: void_abandoned_leases(now=later)] * 4)) == 1
    assert Entry.objects.filter(action="lease.void").count() == 1
    assert Lease.objects.get().held_nanos == 0


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


def ingest_with_a_cut(batch, at):
    """Return whether the batch got through before statement `at`."""
    cut = Cut(at)
    try:
        with connection.execute_wrapper(cut):
            ingest(batch, now=NOW)
    except Error:
        connection.close()
        return False
    return cut.seen < at


def test_a_connection_that_dies_at_any_statement_loses_and_doubles_nothing(customer, price):
    give_credit(customer, 10**9)
    lease = ask_for(customer.id, 10**8)
    events = [with_lease(make_event(customer, price), lease.lease_id) for _ in range(3)]
    batch = make_batch([*events, b'{"schema": 9}'])
    for statement in range(1, 100):
        if ingest_with_a_cut(batch, statement):
            break
        assert UsageEvent.objects.count() == 0
        assert broken_promises() == []
    assert statement > 15
    assert UsageEvent.objects.count() == 3
    assert balance(customer.organization, NOW) == 10**9 - 3 * 132_000
    assert broken_promises() == []
