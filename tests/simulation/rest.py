"""The end of a seed: what is at work ends, journals arrive, leases are given back or voided, grants
that must expire do, followers reach the end, days are sealed."""

import itertools
import random
import time
from datetime import date, timedelta

import psycopg
from django.db import connection, transaction

from billing.credit.services.grants import expire_grants
from billing.credit.services.leases import acknowledge_overrun, void_abandoned_leases
from billing.following.closing import close_days
from billing.following.follow import FOLLOWERS, follow
from billing.following.integrity import check_all
from billing.following.posting import post_due, post_through
from billing.following.sealing import seal_days
from billing.metering.ingest import ingest
from billing.metering.models import Day, DeadLetter
from billing.metering.services import book_again
from control.errors import Conflict
from tests.simulation.cast import OPERATOR, Cast
from tests.simulation.deeds.credit import make_grant, make_payment
from tests.simulation.deeds.gateways import hear_receipt, through_contract
from tests.simulation.edges import check_edges, check_last_ends
from tests.simulation.figures import check_nothing_found
from tests.simulation.gateway import Gateway
from tests.simulation.last_batch import ship_last
from tests.simulation.last_month import (
    close_last_months,
    refuse_last_day_open,
    settle_at_last,
    take_first_back,
    take_parts_back,
    turn_at_last,
)
from tests.simulation.oracle import require
from tests.simulation.paying import is_paying
from tests.simulation.put_right import credit_everything, write_off_everything
from tests.simulation.refusals import check_refusals
from tests.simulation.refusals_payments import check_payment_refusals
from tests.simulation.rest_payments import bring_payments_to_rest
from tests.simulation.returns import check_returns
from tests.simulation.schedule import FAILURE
from tests.simulation.writing import id_meant

POLLS_MAX = 3
SECONDS_TILL_VOIDED = 26 * 3600
PAGES_MAX, PAGE_EVENTS = 200, 3
FOLLOWED_WITHIN_SECONDS = 20
GRACE = timedelta(hours=1)
ABANDONED = "SELECT count(*) FROM credit_lease WHERE closed_at IS NULL AND admits_until <= %s"
UNCLOSED = "SELECT count(*) FROM credit_grant WHERE closed_at IS NULL"
OVERRUNS = """
SELECT id, settled_nanos > granted_nanos, overrun_seen_at FROM credit_lease
ORDER BY settled_nanos - granted_nanos DESC, id
"""
WITHIN_MAX = 4
"""Of the leases that took no more than they were granted, those that came nearest are enough."""
FREE_OF_LEASE = """
SELECT id FROM credit_budget WHERE id = (SELECT budget_id FROM credit_lease WHERE id = %s)
FOR NO KEY UPDATE SKIP LOCKED
"""
UNSEALED = """
SELECT day FROM metering_day WHERE closed_at IS NOT NULL AND sealed_at IS NULL ORDER BY day
"""
UNSEALED_USED = """
SELECT day, EXISTS (SELECT FROM following_hour_rollup WHERE accounted_on = day) FROM metering_day
WHERE closed_at IS NOT NULL AND sealed_at IS NULL ORDER BY day
"""
MISCOUNT = """
UPDATE following_hour_rollup SET waived_nanos = waived_nanos + %s WHERE accounted_on = %s
"""
UNPOSTED_THROUGH = """
SELECT count(DISTINCT (organization_id, accounted_on)) FROM credit_unposted_usage
WHERE accounted_on <= %s
"""
UNPOSTED = "SELECT count(DISTINCT (organization_id, accounted_on)) FROM credit_unposted_usage"
CURSOR = "SELECT xid::text::bigint FROM following_cursor WHERE name = %s"
READ = """
SELECT ingested_xid::text::bigint FROM metering_usage_event
WHERE ingested_xid::text::bigint >= %s AND ingested_xid::text::bigint < %s
"""
ALL_FOLLOWED = """
SELECT coalesce((SELECT min(xid) FROM following_cursor) > greatest(
    (SELECT max(ingested_xid) FROM metering_usage_event),
    (SELECT max(ingested_xid) FROM metering_usage_correction),
    (SELECT max(closed_xid) FROM metering_day)), true)
"""


def come_to_rest(cast: Cast, monitor: psycopg.Connection, seed: int) -> None:
    """Let everything end that has begun, one call after another; one gateway's journal comes a day
    late, when its leases are voided and credit has expired."""
    rng = random.Random(f"rest {seed}")
    cast.world.clock.advance(600)
    *in_time, late = cast.gateways
    for gateway in cast.gateways:
        gateway.skew = timedelta(0)
        gateway.end_all(rng)
    for gateway in in_time:
        _ship_everything(cast, gateway)
        _give_everything_back(cast, gateway, rng)
    for key, wish in cast.wishes.items():
        make_grant(key, wish, cast.now)
    for key, payment in cast.payments.items():
        make_payment(key, payment, cast.now)
    cast.world.clock.advance(SECONDS_TILL_VOIDED)
    _void(cast, monitor)
    _expire(cast, monitor)
    _ship_everything(cast, late)
    _give_everything_back(cast, late, rng)
    _book_again(cast)
    ship_last(cast, monitor, rng)
    check_edges(cast, monitor, rng)
    _acknowledge_overruns(cast, monitor)
    check_nothing_found()
    check_refusals(cast, monitor)
    check_returns(cast, monitor)
    if is_paying(seed):
        check_payment_refusals(cast, monitor)
        bring_payments_to_rest(cast, monitor, rng)
    if turn_at_last(cast, rng):
        close_days(now=cast.now)
        _follow_to_the_end(cast, monitor)
        refuse_last_day_open(cast)
    _finish_books(cast, monitor)


def _void(cast: Cast, monitor: psycopg.Connection) -> None:
    """Void what was abandoned for a day; as many leases as there are."""
    due = _count(monitor, ABANDONED, cast.now - timedelta(hours=24))
    count = void_abandoned_leases(now=cast.now)
    require(count == due, "Voiding says how many", count, due)


def _expire(cast: Cast, monitor: psycopg.Connection) -> None:
    """Expire what must; those that are closed by it are counted."""
    before = _count(monitor, UNCLOSED)
    count = expire_grants(now=cast.now)
    closed = before - _count(monitor, UNCLOSED)
    require(count == closed, "Expiring says how many are closed", count, closed)


def _acknowledge_overruns(cast: Cast, monitor: psycopg.Connection) -> None:
    """Look into each lease that took more than was granted; in others is nothing to see."""
    leases = monitor.execute(OVERRUNS).fetchall()
    over_count = sum(is_over for _, is_over, _ in leases)
    for lease_id, is_over, _ in leases[: over_count + WITHIN_MAX]:
        try:
            with transaction.atomic():
                acknowledge_overrun(actor=OPERATOR, lease_id=lease_id, reason="seen", now=cast.now)
                free = monitor.execute(FREE_OF_LEASE, [lease_id]).fetchall()
                require(not free, "Who changes a lease has locked its budget", lease_id)
        except Conflict:
            require(not is_over, "An overrun can be looked into", lease_id)
        else:
            require(is_over, "Only an overrun can be looked into", lease_id)
    wrong = [row for row in monitor.execute(OVERRUNS) if row[1] != (row[2] == cast.now)]
    require(not wrong, "What was looked into is noted", wrong)


def _count(monitor: psycopg.Connection, query: str, *values: object) -> int:
    row = monitor.execute(query, values).fetchone()
    return int(row[0]) if row else 0


def _book_again(cast: Cast) -> None:
    """Book the letters of statements that were made to fail, as an operator would."""
    for letter in DeadLetter.objects.filter(reason__endswith=FAILURE):
        book_again(actor=OPERATOR, letter=letter, now=cast.now)
        event_id = id_meant(letter.event_id)
        cast.dead.discard(event_id)
        cast.acknowledged.add(event_id)


def _finish_books(cast: Cast, monitor: psycopg.Connection) -> None:
    closed, due = close_days(now=cast.now), (cast.now - GRACE).date() - timedelta(days=1)
    require(closed == due, "A day is closed an hour after it ended", closed, due)
    _follow_to_the_end(cast, monitor)
    _check_posting(cast, monitor, due)
    _check_disagreement(cast, monitor)
    wanted = [day for (day,) in monitor.execute(UNSEALED)]
    sealed = seal_days(now=cast.now)
    require(sealed == wanted, "Days are sealed in order", sealed, wanted)
    unsealed = Day.objects.filter(closed_at__isnull=False, sealed_at__isnull=True)
    require(not unsealed.exists(), "A closed day that was followed is sealed", *unsealed)
    _expire(cast, monitor)
    check_last_ends(cast, monitor)
    close_last_months(cast)
    due_count = _count(monitor, UNPOSTED)
    count = post_through(date.max, now=cast.now)
    require(count == due_count, "Posting says how many", count, due_count)
    _expire(cast, monitor)
    take_parts_back(cast)
    take_first_back(cast)
    credit_everything(cast, cast.world.organization_ids[0])
    for organization_id in cast.world.organization_ids:
        write_off_everything(cast, organization_id)
    settle_at_last(cast)
    broken = [f"{one.sentence}: {one.shown}" for one in check_all() if not one.holds]
    require(not broken, "The house's own checks hold", *broken)


def _check_posting(cast: Cast, monitor: psycopg.Connection, closed: date) -> None:
    """Usage of days that are closed and followed is posted."""
    due_count = _count(monitor, UNPOSTED_THROUGH, closed)
    count = post_due(now=cast.now)
    require(count == due_count, "Posting what is due says how many", count, due_count)


def _check_disagreement(cast: Cast, monitor: psycopg.Connection) -> None:
    """A day whose sums are not those of its events is not sealed, nor is one after it."""
    unsealed = monitor.execute(UNSEALED_USED).fetchall()
    if not any(is_used for _, is_used in unsealed):
        return
    place = [is_used for _, is_used in unsealed].index(True)
    days = [day for day, _ in unsealed]
    monitor.execute(MISCOUNT, [1, days[place]])
    sealed = seal_days(now=cast.now)
    require(sealed == days[:place], "A day that disagrees is not sealed", sealed, days, place)
    monitor.execute(MISCOUNT, [-1, days[place]])


def _follow_to_the_end(cast: Cast, monitor: psycopg.Connection) -> None:
    """Follow everything; another database of the server may hold the snapshot back for a while."""
    deadline = time.monotonic() + FOLLOWED_WITHIN_SECONDS
    while not (all(_follow(cast, monitor, name) for name in FOLLOWERS) and _is_followed()):
        require(time.monotonic() < deadline, "Followers come to the end")
        time.sleep(0.01)


def _follow(cast: Cast, monitor: psycopg.Connection, name: str) -> bool:
    """Follow by small pages, of which there are enough; each ends where it must."""
    for _ in range(PAGES_MAX):
        (begins,) = monitor.execute(CURSOR, [name]).fetchone() or (0,)
        is_last = follow(name, now=cast.now, pages_max=1, events=PAGE_EVENTS)
        (ends,) = monitor.execute(CURSOR, [name]).fetchone() or (0,)
        read = [xid for (xid,) in monitor.execute(READ, [begins, ends])]
        is_short = len(read) < PAGE_EVENTS
        before = sum(xid < ends - 1 for xid in read)
        is_whole = ends - 1 in read and before < PAGE_EVENTS and not is_short
        is_right = is_short if is_last else is_whole
        require(is_right, "A page ends with the transaction of its last event", name, begins, ends)
        if is_last:
            return True
    return False


def _is_followed() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(ALL_FOLLOWED)
        return bool(cursor.fetchone()[0])


def _ship_everything(cast: Cast, gateway: Gateway) -> None:
    batch = gateway.whole_journal()
    if batch.events:
        hear_receipt(cast, gateway, batch, ingest(batch, now=cast.now))


def _give_everything_back(cast: Cast, gateway: Gateway, rng: random.Random) -> None:
    """Poll until nothing is left; the session of a crash may hold a budget for a moment yet."""
    deadline = time.monotonic() + FOLLOWED_WITHIN_SECONDS
    for count in itertools.count():
        if count >= POLLS_MAX:
            if not gateway.leases or time.monotonic() >= deadline:
                break
            time.sleep(0.01)
        request = gateway.poll(rng)
        gateway.hear(request, through_contract(request, now=cast.now), rng)
        gateway.end_all(rng)
        _ship_everything(cast, gateway)
    require(not gateway.leases, "A gateway gets rid of its leases", gateway.leases)
