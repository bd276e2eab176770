"""What runs beside ingest: the followers, and a gateway that asks for leases."""

import random
import time
from functools import partial

from django.utils import timezone

from billing.following.beat import FOLLOW_SECONDS
from billing.following.follow import FOLLOWERS, follow, follow_all
from billing.following.pace import Pace
from billing.following.selectors import lag_seconds
from serving.contract.lease import LeaseReturn
from tests.benchmarks.books.deeds.leases import NEED_NANOS, asks_for, granted
from tests.benchmarks.books.deeds.world import callers
from tests.benchmarks.books.results import Followed

PROBE_SECONDS = 0.05


def _follow(name: str) -> bool:
    return follow(name, now=timezone.now())


def follow_until(until: float) -> Followed:
    """Let the followers read on at their pace, as the worker does; then to the very end."""
    followed, paces = Followed(), {name: Pace() for name in FOLLOWERS}
    follow_all(now=timezone.now())
    while time.time() < until:
        began = time.monotonic()
        for name, pace in paces.items():
            pace.run(partial(_follow, name))
        lag = max(lag_seconds(timezone.now()).values())
        followed.lag_max_seconds = max(followed.lag_max_seconds, lag)
        time.sleep(max(0.0, FOLLOW_SECONDS - (time.monotonic() - began)))
    began = time.monotonic()
    while not follow_all(now=timezone.now()):
        pass
    followed.catch_up_seconds = time.monotonic() - began
    return followed


def probe(gateway: str, until: float) -> list[float]:
    """Ask for the leases of a random caller's request every 50 ms, and return those before.

    Returns how many milliseconds each chain took, from the asks to the last grant.
    """
    milliseconds, chance = [], random.Random(gateway)
    returns: list[LeaseReturn] = []
    while time.time() < until:
        asks = asks_for(chance.choice(callers()).budget_ids, NEED_NANOS)
        began = time.perf_counter()
        leases = granted(gateway, asks, returns)
        taken = time.perf_counter() - began
        milliseconds.append(taken * 1000)
        returns = [LeaseReturn(lease_id, 0, True) for lease_id in leases.values()]
        time.sleep(max(0.0, PROBE_SECONDS - taken))
    return milliseconds
