"""How soon the first requests of a thousand organizations are answered, which no gateway has
leased money for yet."""

import asyncio
from statistics import median

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile
from tests.fixtures.first_requests import first_requests, make_organizations
from tests.fixtures.second_gateway import beside
from tests.fixtures.stack import running

ORGANIZATIONS = 1_000
PER_SECOND = 200.0
REMARKS = (
    f"{PER_SECOND:g} first requests a second, in turn at two gateways before a simulated engine."
    " Platform, gateways and client share this machine. One round, since each organization is new"
    " once.",
)


def measure(plan: Plan) -> Table:
    """Return the seconds from a first request until its answer."""
    folder = plan.folder / "second-gateway"
    folder.mkdir()
    with running(engine="simulated") as stack, beside(stack, folder) as second:
        keys = make_organizations(stack, ORGANIZATIONS)
        api_bases = [stack.api_base, second.api_base]
        answers = asyncio.run(first_requests(api_bases, stack.model, keys, per_second=PER_SECOND))
    if {status for status, _ in answers} != {200}:
        raise BenchmarkFailed(f"answered {sorted({status for status, _ in answers})}")
    seconds = [each for _, each in answers]
    rows = [
        Row("first request until answered, median", "two gateways", "s", [median(seconds)]),
        Row("the same, p99", "two gateways", "s", [percentile(seconds, 99)]),
        Row("the same, longest", "two gateways", "s", [max(seconds)]),
    ]
    title = f"First requests of {ORGANIZATIONS} organizations"
    return Table(title, rows, ["every first request was answered 200"], REMARKS)
