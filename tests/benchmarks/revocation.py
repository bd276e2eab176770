"""How soon two gateways refuse a key that was revoked."""

import asyncio
from statistics import median

import aiohttp

from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile
from tests.fixtures.revocation import AT_ONCE, revocation_delays
from tests.fixtures.second_gateway import beside
from tests.fixtures.stack import Stack, running

KEYS = 200
WORST_SECONDS = 60.0
REMARKS = (
    f"{KEYS} keys a round, {AT_ONCE} at once: minted and revoked by the management API, and tried"
    " at two gateways until both refuse. Platform, gateways and client share this machine.",
)


def measure(plan: Plan) -> Table:
    """Return the seconds from a revocation until both gateways refuse the key."""
    folder = plan.folder / "second-gateway"
    folder.mkdir()
    with running(engine="simulated") as stack, beside(stack, folder) as second:
        gateways = [stack.api_base, second.api_base]
        rounds = [asyncio.run(_round(stack, gateways)) for _ in range(plan.rounds)]
    rows = [
        Row(
            "revoked until refused, median", "two gateways", "s", [median(each) for each in rounds]
        ),
        Row("the same, p99", "two gateways", "s", [percentile(each, 99) for each in rounds]),
    ]
    return Table("Revoked keys", rows, ["every key was refused by both"], REMARKS)


async def _round(stack: Stack, gateways: list[str]) -> list[float]:
    async with aiohttp.ClientSession() as session, stack.management(session) as keys:
        return await revocation_delays(keys, gateways, keys=KEYS, seconds_max=WORST_SECONDS)
