"""Who is slow or failing fills places of its own and no others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from threading import Event, Lock, Thread
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection, connections
from django.utils import timezone

from control.outbox.claims import (
    CLAIM,
    IN_TROUBLE,
    PER_KIND,
    PER_LANE,
    PER_ORGANIZATION,
    ConcurrencyLimits,
    claim,
    ends_of,
    values_of,
)
from control.outbox.delivery import Delivery, OutboxWorker, RetryPolicy
from control.outbox.models import OutboxMessage
from tests.fixtures.outbox import NOW, delivering, failing, put

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
MINUTE = timedelta(minutes=1)


def taken(page: int = 100) -> Counter[str]:
    return Counter(message.organization_id or "" for message in claim(now=NOW, page=page))


def put_many(count: int, organization_id: str | None, lane: str, kind: str = "note") -> None:
    for _ in range(count):
        put(kind=kind, organization_id=organization_id, lane=lane, now=NOW - MINUTE)


def test_a_lane_and_an_organization_have_a_few_places() -> None:
    put_many(10, "org_1", "endpoint 1")
    assert taken() == {"org_1": PER_LANE}
    for number in range(2, 9):
        put_many(10, "org_1", f"endpoint {number}")
    put_many(1, "org_2", "endpoint of 2")
    assert taken() == {"org_1": PER_ORGANIZATION - PER_LANE, "org_2": 1}
    assert taken() == {}


def test_a_kind_leaves_places_to_other_kinds() -> None:
    for number in range(40):
        put_many(2, f"org_{number}", f"mail {number}", kind="mail")
    put_many(1, "org_1", "hook", kind="webhook")
    kinds = Counter(message.kind for message in claim(now=NOW, page=100))
    assert kinds == {"mail": PER_KIND, "webhook": 1}


def test_lanes_in_trouble_leave_places_to_others() -> None:
    for number in range(30):
        put_many(1, f"org_{number}", f"lane {number}")
    OutboxMessage.objects.update(last_error="it failed")
    put_many(1, "org_new", "lane new")
    found = taken()
    assert sum(found.values()) == IN_TROUBLE + 1
    assert found["org_new"] == 1


def test_idle_lanes_come_first() -> None:
    put_many(5, "org_1", "lane 1")
    claim(now=NOW, page=1)
    put(organization_id="org_2", lane="lane 2", now=NOW)
    assert taken(page=1) == {"org_2": 1}


def test_two_workers_never_have_the_same_message(pooled: None) -> None:
    for number in range(60):
        put(organization_id=f"org_{number}", now=NOW)
    found: list[int] = []
    lock = Lock()

    def work() -> None:
        try:
            while page := claim(now=NOW, page=3):
                with lock:
                    found.extend(message.id for message in page)
                OutboxMessage.objects.filter(id__in=[m.id for m in page]).update(
                    delivered_at=NOW, claimed_until=None
                )
        finally:
            connections.close_all()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 60


@pytest.fixture
def clock() -> SimpleNamespace:
    """The deliverer's clock, which stands `at` a moment."""
    return SimpleNamespace(at=timezone.now())


@pytest.fixture
def deliverer(pooled: None, clock: SimpleNamespace) -> Iterator[OutboxWorker]:
    made = OutboxWorker(threads=16, clock=lambda: clock.at)
    yield made
    made.close()


def test_a_slow_organization_delays_nobody_else(
    deliverer: OutboxWorker, clock: SimpleNamespace
) -> None:
    now = clock.at
    for _ in range(20):
        put(organization_id="slow", now=now)
    for number in range(30):
        put(organization_id=f"org_{number}", now=now)
    lock, others_are_done = Lock(), Event()
    done, slow_at_once, slow_at_once_max = set[str](), 0, 0

    def handle(delivery: Delivery) -> None:
        nonlocal slow_at_once, slow_at_once_max
        if delivery.organization_id != "slow":
            with lock:
                done.add(delivery.organization_id or "")
                if len(done) == 30:
                    others_are_done.set()
            return
        with lock:
            slow_at_once += 1
            slow_at_once_max = max(slow_at_once_max, slow_at_once)
        assert others_are_done.wait(30), "waited in vain for the others, behind the slow one"
        with lock:
            slow_at_once -= 1

    with delivering({"note": handle}):
        deliverer.run()
    assert not OutboxMessage.objects.filter(delivered_at__isnull=True).exists()
    assert 1 <= slow_at_once_max <= PER_LANE


def test_what_takes_too_long_counts_as_failed_and_others_go_on(
    deliverer: OutboxWorker, clock: SimpleNamespace
) -> None:
    """The other comes while one hangs; its time goes on once the other has come."""
    begun, hangs = Event(), Event()
    now = clock.at
    stuck = put(key="stuck", now=now)
    policy = RetryPolicy(time_limit=timedelta(seconds=0.5))

    def handle(delivery: Delivery) -> None:
        if delivery.key == "stuck":
            begun.set()
            hangs.wait(60)
        else:
            clock.at += timedelta(seconds=1)

    def put_another() -> None:
        with closing(connection):
            assert begun.wait(60), "waited in vain for the delivery that hangs"
            put(kind="other", now=now)

    another = Thread(target=put_another)
    try:
        with delivering({"note": handle, "other": handle}, {"note": policy}):
            another.start()
            deliverer.run()
            another.join()
            stuck.refresh_from_db()
            assert stuck.last_error == "took longer than 0.5 s"
            assert stuck.claimed_until is None
            assert OutboxMessage.objects.filter(delivered_at__isnull=False).count() == 1
    finally:
        hangs.set()
        deliverer.close()
    stuck.refresh_from_db()
    assert stuck.delivered_at  # late, and done all the same


def test_a_deliverer_that_stops_takes_nothing_new(
    deliverer: OutboxWorker, clock: SimpleNamespace
) -> None:
    put(now=clock.at)
    deliverer.stop()
    deliverer.run()
    assert OutboxMessage.objects.get().attempts == 0


def test_a_second_run_leaves_it_to_the_first(
    deliverer: OutboxWorker, clock: SimpleNamespace
) -> None:
    began, ends = Event(), Event()
    put(now=clock.at)

    def handle(_: Delivery) -> None:
        began.set()
        ends.wait(60)

    def run() -> None:
        with closing(connection):
            deliverer.run()

    with delivering({"note": handle}):
        first = Thread(target=run)
        first.start()
        assert began.wait(60), "waited in vain for the first run's delivery"
        deliverer.run()
        assert first.is_alive()
        ends.set()
        first.join()
    assert OutboxMessage.objects.get().attempts == 1


def test_failures_of_many_do_not_end_a_run(deliverer: OutboxWorker, clock: SimpleNamespace) -> None:
    for number in range(40):
        put(organization_id=f"org_{number}", now=clock.at)
    with delivering({"note": failing(OSError("away"))}):
        deliverer.run(seconds=60)
    assert set(OutboxMessage.objects.values_list("attempts", flat=True)) == {1}


def test_lanes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim weighs only so many messages; those behind come next, then it begins anew."""
    monkeypatch.setattr("control.outbox.claims.WINDOW", 4)
    for number in range(6):
        put_many(9, f"org_{number}", f"lane {number}")
    after: dict[str, str] = {}
    turns = []
    for _ in range(7):
        page = claim(now=NOW, page=2, after=after)
        after = ends_of(page)
        turns += sorted({message.lane for message in page})
        OutboxMessage.objects.filter(id__in=[m.id for m in page]).update(
            claimed_until=None, due_at=NOW
        )
    assert turns == [f"lane {number}" for number in (*range(6), 0)]


def test_a_kind_that_is_full_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control.outbox.claims.WINDOW", 4)
    for number in range(PER_KIND + 6):
        put_many(1, f"org_{number}", f"a {number}", kind="mail")
    put_many(1, "org_1", "z", kind="webhook")
    found = [message.kind for _ in range(20) for message in claim(now=NOW, page=100)]
    assert Counter(found) == {"mail": PER_KIND, "webhook": 1}


LANES = 10_000
LOOKED_AT_MAX = 5_000
"""Rows that a claim may read: a few times what it weighs, however many lanes there are."""
MESSAGES = """
INSERT INTO outbox_message (kind, key, payload, organization_id, lane, created_at, started_at,
    due_at, attempts, last_error)
SELECT 'webhook', 'm' || lane || ':' || place, '{}', 'org_' || lane, 'lane ' || lane, %(now)s,
    %(now)s, %(due_at)s, 0, ''
FROM generate_series(1, %(lanes)s) AS lane, generate_series(1, 3) AS place
"""


def rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows a plan's nodes gave on, all in all."""
    own = int(plan["Actual Rows"] * plan["Actual Loops"])
    return own + sum(rows_read(part) for part in plan.get("Plans", ()))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("state", ["due", "kind full", "all but one wait"])
def test_a_claim_of_ten_thousand_lanes_looks_at_a_few(
    state: str, owner_connection: psycopg.Connection
) -> None:
    """The owner's statistics are what autovacuum brings within a minute."""
    with connection.cursor() as cursor:
        due_at = NOW + MINUTE if state == "all but one wait" else NOW - MINUTE
        cursor.execute(MESSAGES, {"now": NOW - MINUTE, "due_at": due_at, "lanes": LANES})
        cursor.execute("UPDATE outbox_message SET due_at = started_at WHERE lane = 'lane 99'")
        owner_connection.execute("ANALYZE outbox_message")
        if state == "kind full":
            assert len(claim(now=NOW, page=100)) == PER_KIND
        values = values_of(NOW, 8, ConcurrencyLimits(), {"webhook": "lane 5"})
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + CLAIM, values)
        ((plan,),) = cursor.fetchone()
    assert plan["Plan"]["Actual Rows"] == {"due": 8, "kind full": 0}.get(state, PER_LANE)
    assert rows_read(plan["Plan"]) <= LOOKED_AT_MAX
