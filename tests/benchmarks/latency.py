"""Added latency: one request at a time, straight to the engine and through each gateway in turn."""

from collections.abc import Iterator, Sequence

from tests.benchmarks import peers, wrk
from tests.benchmarks.contest import Contest, bodies, contest
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, difference, percentile

SECONDS = 2
TOKENS = 64
WHOLE = wrk.Load(bodies(max_tokens=TOKENS), 1, SECONDS, f'"completion_tokens":{TOKENS}')
STREAMS = bodies(max_tokens=TOKENS, stream=True)


def measure(plan: Plan) -> Table:
    """Return the medians and 99th percentiles of each round, and what each gateway adds to them."""
    with contest(plan) as on:
        rows = [*_whole(on, plan.rounds), *_streams(on, plan.rounds)]
        checks = [on.close_books()]
    title = f"Added latency: 1 connection, {plan.rounds} rounds of {SECONDS} s, in turn"
    return Table(title, rows, checks, peers.DOES if plan.with_peers else ())


def _whole(on: Contest, rounds: int) -> Iterator[Row]:
    on.warm_up(WHOLE)
    seen = [[on.run(target, WHOLE) for target in on.targets] for _ in range(rounds)]
    for figure, microseconds in (("p50", "p50_us"), ("p99", "p99_us")):
        taken = [[getattr(outcome, microseconds) / 1e3 for outcome in once] for once in seen]
        yield from _added(on, f"{figure}, whole answer of {TOKENS} tokens", taken)


def _streams(on: Contest, rounds: int) -> Iterator[Row]:
    seen = [
        [on.time_streams(target, STREAMS, SECONDS) for target in on.targets] for _ in range(rounds)
    ]
    for percent in (50, 99):
        first = [[percentile(of.to_first_byte, percent) for of in once] for once in seen]
        yield from _added(on, f"p{percent}, to the first byte of a stream", first)
        end = [[percentile(of.to_end, percent) for of in once] for once in seen]
        yield from _added(on, f"p{percent}, to the end of a stream", end)


def _added(on: Contest, figure: str, taken: Sequence[Sequence[float]]) -> Iterator[Row]:
    """Return a row for each target, and what all but the engine itself add; `taken` is by round."""
    direct, *through = [
        Row(figure, target.name, "ms", [once[place] for once in taken])
        for place, target in enumerate(on.targets)
    ]
    yield from (direct, *through)
    yield from (difference(f"added, {figure}", row, direct) for row in through)
