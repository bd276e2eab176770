"""One of control's processes taking in the full batches of one gateway."""

import random
import time
from functools import cache
from itertools import cycle

import psutil
from django.db import connection
from django.utils import timezone

from billing.metering.ingest import ingest
from serving.contract.codec import encode
from serving.contract.usage import EVENTS_MAX
from tests.benchmarks.books.deeds.bodies import Body, batch_of, make_bodies
from tests.benchmarks.books.deeds.leases import take_leases
from tests.benchmarks.books.deeds.world import callers
from tests.benchmarks.books.results import Fed
from tests.benchmarks.failure import BenchmarkFailed
from tests.fixtures.usage import make_batch

BODIES = 20
"""Encoded in advance: 110 MB, and 100,000 requests before they repeat but for their ids."""
WARM_UP = 2
"""Batches before the clock runs."""
ROUND = 8
"""Batches of a round of repeats: half of what they hold is new."""


class Taker:
    """Takes batches in and counts them."""

    def __init__(self) -> None:
        self.fed = Fed()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            self._backend = psutil.Process(cursor.fetchone()[0])

    def take_in(self, body: bytes) -> None:
        """Book a batch. Raises BenchmarkFailed where an event is no good."""
        fed, began, cpu, used = self.fed, time.perf_counter(), time.process_time(), self._used()
        receipt = ingest(batch_of(body), now=timezone.now())
        encode(receipt)
        fed.seconds += time.perf_counter() - began
        fed.python_seconds += time.process_time() - cpu
        fed.backend_seconds += self._used() - used
        fed.done_at.append(time.time())
        if receipt.dead_lettered:
            raise BenchmarkFailed(f"a dead letter: {receipt.dead_lettered[0]}")
        fed.accepted += receipt.accepted
        fed.duplicates += receipt.duplicates

    def _used(self) -> float:
        """Return the CPU seconds of the PostgreSQL process that serves this one."""
        times = self._backend.cpu_times()
        return float(times.user + times.system)


@cache
def bodies(gateway: str) -> list[Body]:
    """Return the bodies of a gateway, which holds a lease of every budget there is."""
    budget_ids = dict.fromkeys(name for one in callers() for name in one.budget_ids)
    leases = take_leases(gateway, budget_ids)
    return make_bodies(BODIES, gateway=gateway, leases=leases, callers=callers())


def get_ready(gateway: str) -> int:
    """Encode bodies and take two of them in, so that nothing is new to the process.

    Returns how many events that were.
    """
    taker = Taker()
    for body in bodies(gateway)[:WARM_UP]:
        taker.take_in(body.renewed())
    return taker.fed.accepted


def feed(gateway: str, until: float) -> Fed:
    """Take in batches of new events, one after the other, until a moment."""
    taker = Taker()
    for body in cycle(bodies(gateway)):
        if time.time() >= until:
            return taker.fed
        taker.take_in(body.renewed())
    return taker.fed


def feed_repeats(gateway: str, seed: int) -> Fed:
    """Take in one round: every event comes twice, all of them in one random order."""
    taker = Taker()
    for body in _repeating(gateway, seed):
        taker.take_in(body)
    return taker.fed


def _repeating(gateway: str, seed: int) -> list[bytes]:
    fresh = [body.renewed() for body in bodies(gateway)[: ROUND // 2]]
    events = [bytes(raw) for body in fresh for raw in batch_of(body).events] * 2
    random.Random(seed).shuffle(events)
    parts = (events[start : start + EVENTS_MAX] for start in range(0, len(events), EVENTS_MAX))
    return [encode(make_batch(part, gateway)) for part in parts]


def profile(gateway: str, batches: int) -> str:
    """Return where Python's time goes while batches are taken in."""
    import cProfile
    import io
    import pstats

    taker, out = Taker(), io.StringIO()
    ready = [
        body.renewed() for _, body in zip(range(batches), cycle(bodies(gateway)), strict=False)
    ]
    with cProfile.Profile() as seen:
        for body in ready:
            taker.take_in(body)
    pstats.Stats(seen, stream=out).sort_stats("tottime").print_stats(25)
    return out.getvalue()
