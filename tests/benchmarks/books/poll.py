"""A gateway's largest poll: 500 asks and 10,000 returns in one call, beside ingest."""

import time
from collections.abc import Iterator, Sequence

from serving.contract.lease import ASKS_MAX, RETURNS_MAX
from tests.benchmarks.books.results import Polled
from tests.benchmarks.books.server import serving
from tests.benchmarks.books.stage import Stage, stage
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile

ORGANIZATIONS = RETURNS_MAX // 4
"""Each has a balance and three limits: 10,000 budgets, and each gateway a lease of every one."""
POLLERS = ("gw_3", "gw_4")


def measure(plan: Plan) -> Table:
    """Return what such a poll takes, and how many statements."""
    with serving(plan.folder) as server, stage(server, ORGANIZATIONS) as on:
        rows, checks = _measure(on, plan.seconds)
        remarks = [server.settings()]
    title = (
        f"Lease polls: {ASKS_MAX} asks and {RETURNS_MAX:,} returns, two gateways with leases of"
        f" the same {RETURNS_MAX:,} budgets, beside ingest by two others, {plan.seconds} s"
    )
    return Table(title, rows, checks, remarks)


def _measure(on: Stage, seconds: int) -> tuple[list[Row], list[str]]:
    ready = sum(on.each_gateway("feeding.get_ready"))
    for worker, gateway in zip(on.others, POLLERS, strict=True):
        worker.run("polls.get_ready", gateway)
    until = time.time() + seconds
    polling = [
        worker.start("polls.poll_until", gateway, until)
        for worker, gateway in zip(on.others, POLLERS, strict=True)
    ]
    accepted = sum(fed.accepted for fed in on.each_gateway("feeding.feed", until))
    polled = [one.result() for one in polling]
    on.others[0].run("beside.follow_until", 0.0)
    checks = [on.prove(ready + accepted)]
    return list(_rows(polled, accepted / seconds)), checks


def _rows(polled: Sequence[Polled], rate: float) -> Iterator[Row]:
    milliseconds = [one for by in polled for one in by.milliseconds]
    polls = len(milliseconds)
    yield Row("a poll", "two gateways", "ms", milliseconds)
    yield Row("p99 of a poll", "two gateways", "ms", [percentile(milliseconds, 99)])
    yield Row("polls", "two gateways", "polls", [polls])
    yield Row("statements", "two gateways", "a poll", [n for by in polled for n in by.statements])
    for name in ("granted", "deferred", "returned"):
        total = sum(getattr(by, name) for by in polled)
        yield Row(f"{name} at once", "two gateways", "a poll", [total / polls])
    yield Row("ingest meanwhile", "two gateways", "events/s", [rate])
