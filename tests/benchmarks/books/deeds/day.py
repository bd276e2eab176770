"""A day of many small customers, lived minute by minute on a clock of its own, by the services."""

import random
from collections.abc import Iterator
from datetime import date, datetime, timedelta

from billing.following.closing import close_days
from billing.following.follow import follow_all
from billing.following.posting import post_due
from billing.following.sealing import seal_days
from billing.metering.ingest import ingest
from serving.contract.ids import uuid7
from serving.contract.lease import ASKS_MAX, LeaseReturn
from tests.benchmarks.books.deeds.bodies import make_event
from tests.benchmarks.books.deeds.history import midnight
from tests.benchmarks.books.deeds.leases import NEED_NANOS, asks_for, granted
from tests.benchmarks.books.deeds.world import callers
from tests.fixtures.following import catch_up
from tests.fixtures.usage import make_batch

GATEWAY = "gw_1"
MINUTES = 24 * 60
RENEWED_MINUTES = 5
"""Leases admit for fifteen minutes and are renewed ten before their end."""
BATCH_MAX = 5000


def live(day: date, events: int) -> None:
    """Ingest a day's events as they come, follow them, renew the leases; then close, post, seal."""
    chance, leases = random.Random(7), dict[str, str]()
    for minute in range(MINUTES):
        now = midnight(day) + timedelta(minutes=minute)
        if minute % RENEWED_MINUTES == 0:
            leases = _renew(leases, now)
        count = events * (minute + 1) // MINUTES - events * minute // MINUTES
        _ingest(chance, leases, now, count)
        follow_all(now=now)
    over = midnight(day) + timedelta(days=1, hours=2)
    close_days(now=over)
    catch_up(over)
    post_due(now=over)
    seal_days(now=over)


def _ingest(chance: random.Random, leases: dict[str, str], now: datetime, count: int) -> None:
    for start in range(0, count, BATCH_MAX):
        some = min(BATCH_MAX, count - start)
        events = [
            make_event(chance, chance.choice(callers()), GATEWAY, leases, _id(chance, now))
            for _ in range(some)
        ]
        receipt = ingest(make_batch(events, GATEWAY), now=now + timedelta(minutes=1))
        assert receipt.accepted == some, receipt


def _id(chance: random.Random, now: datetime) -> str:
    at_ms = int(now.timestamp() * 1000) + chance.randrange(60_000)
    return uuid7(at_ms=at_ms, random_bits=chance.getrandbits(74))


def _renew(leases: dict[str, str], now: datetime) -> dict[str, str]:
    """Return a new lease of every budget; those before are closed."""
    fresh: dict[str, str] = {}
    for some in _parts(list(dict.fromkeys(name for one in callers() for name in one.budget_ids))):
        returns = [LeaseReturn(leases[name], 0, True) for name in some if name in leases]
        fresh |= granted(GATEWAY, asks_for(some, 1000 * NEED_NANOS, now), returns, now)
    return fresh


def _parts(names: list[str]) -> Iterator[list[str]]:
    return (names[start : start + ASKS_MAX] for start in range(0, len(names), ASKS_MAX))
