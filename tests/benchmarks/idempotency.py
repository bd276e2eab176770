"""Streams by idempotency keys, on a whole platform whose gateways are killed: charged once."""

import asyncio
import time

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table
from tests.fixtures.replaying import GATEWAYS, Replays, must_be_once, replay, turn_on
from tests.fixtures.stack import QUICK_RESTARTS, Stack, running

KEYS = 2_000
TIMES = 3
CLIENTS = 12
SEED = 2_000
REMARKS = (
    f"Each key is asked for by two clients at once until it was told {TIMES} times whole; simulated"
    " engine, two gateway processes each killed 0.2 to 3 s after it is ready.",
    "A try that is not told whole was broken by a kill, told 409 (running elsewhere) or 503.",
)


def measure(plan: Plan) -> Table:
    """Return how the tries of all keys ended, and how often a key completed."""
    with running(
        engine="simulated", prepared=False, PENSTOCK_GATEWAYS="2", **QUICK_RESTARTS
    ) as stack:
        began = time.monotonic()
        replays = _replay(stack)
        seconds = time.monotonic() - began
        try:
            lost = must_be_once(stack, replays, seed=SEED)
        except AssertionError as broken:
            raise BenchmarkFailed(str(broken)) from broken
    checks = [
        f"{KEYS} keys were told the same bytes each time",
        f"{KEYS} requests completed, one of each key: that which was told",
    ]
    title = f"Idempotency: {KEYS} streams, {replays.kills} kills in {seconds:.0f} s"
    return Table(title, _rows(replays, lost), checks, REMARKS)


def _replay(stack: Stack) -> Replays:
    tenant = stack.new_tenant("idempotent@acme.example")
    asyncio.run(turn_on(stack, tenant))
    asked = {"keys": KEYS, "times": TIMES, "clients": CLIENTS}
    return asyncio.run(replay(stack, tenant, **asked, victims=GATEWAYS, seed=SEED))


def _rows(replays: Replays, lost: int) -> list[Row]:
    told = sum(len(life.bodies) for life in replays.lives)
    again = sum(life.again for life in replays.lives)
    figures = {
        "keys": len(replays.lives),
        "gateways killed": replays.kills,
        "told whole": told,
        "of these, told again": again,
        "cut short": replays.count("cut"),
        "not answered": replays.count("broken"),
        "told 409": replays.count("409"),
        "told 503": replays.count("503"),
        "came to nothing, charged to nobody": lost,
    }
    return [Row(name, "two gateways", "", [float(value)]) for name, value in figures.items()]
