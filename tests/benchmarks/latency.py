"""Added latency: one request at a time, straight to the engine and through each gateway in turn."""

from collections.abc import Iterator

from tests.benchmarks import peers, wrk
from tests.benchmarks.contest import Contest, bodies, contest
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, difference

SECONDS = 2
LOADS = {
    "whole answer, 64 tokens": wrk.Load(
        bodies(max_tokens=64), 1, SECONDS, '"completion_tokens":64'
    ),
    "stream of one token": wrk.Load(
        bodies(max_tokens=1, stream=True), 1, SECONDS, "data: [DONE]", frames_min=2
    ),
}


def measure(plan: Plan) -> Table:
    """Return the medians and 99th percentiles of each round, and what each gateway adds to them."""
    with contest(plan) as on:
        rows = [row for name, load in LOADS.items() for row in _rows(on, name, load, plan.rounds)]
        checks = [on.close_books()]
    title = f"Added latency: 1 connection, {plan.rounds} rounds of {SECONDS} s, in turn"
    return Table(title, rows, checks, peers.DOES if plan.with_peers else ())


def _rows(on: Contest, name: str, load: wrk.Load, rounds: int) -> Iterator[Row]:
    on.warm_up(load)
    seen = [[on.run(target, load) for target in on.targets] for _ in range(rounds)]
    by_target = list(zip(on.targets, zip(*seen, strict=True), strict=True))
    for figure, microseconds in (("p50", "p50_us"), ("p99", "p99_us")):
        direct, *through = [
            Row(
                f"{figure}, {name}", target.name, "ms", [getattr(o, microseconds) / 1e3 for o in of]
            )
            for target, of in by_target
        ]
        yield from (direct, *through)
        yield from (difference(f"{figure} added, {name}", row, direct) for row in through)
