"""Throughput of a gateway on one core: whole answers, bursts of streams, streams token by token."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.benchmarks import peers, wrk
from tests.benchmarks.clocked import Probe
from tests.benchmarks.contest import Contest, bodies, contest
from tests.benchmarks.engine_counters import Window
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, difference, percentile, ratio
from tests.benchmarks.target import Target

TOKENS = 64
CONNECTIONS = 32
SECONDS = 3
PACED_STREAMS = 1_000
PROBES = 20
"""More streams, whose chunks are timed."""
PACED_SECONDS = 8
PACED_SKIP_SECONDS = 3.0
ITL_MS = 20.0
WHOLE = wrk.Load(bodies(max_tokens=TOKENS), CONNECTIONS, SECONDS, f'"completion_tokens":{TOKENS}')
BURST = wrk.Load(
    bodies(max_tokens=TOKENS, stream=True), CONNECTIONS, SECONDS, "data: [DONE]", TOKENS
)
PACED = wrk.Load(
    bodies(max_tokens=TOKENS, stream=True), PACED_STREAMS, PACED_SECONDS, "data: [DONE]", TOKENS
)


def measure_requests(plan: Plan) -> Table:
    """Return whole answers and bursts of streams a second, with the direct rate as the ceiling."""
    with contest(plan) as on:
        rows = [
            *_rates(on, f"whole answers, {TOKENS} tokens", WHOLE, plan.rounds),
            *_rates(on, f"streams in a burst, {TOKENS} tokens", BURST, plan.rounds),
        ]
        rows += [_memory(target) for target in on.targets[1:]]
        checks = [on.close_books()]
    title = f"Requests on one core: {CONNECTIONS} connections, {plan.rounds} rounds of {SECONDS} s"
    return Table(title, rows, checks, peers.DOES if plan.with_peers else ())


def measure_chunks(plan: Plan) -> Table:
    """Return streamed chunks a second where the engine sends each token by itself."""
    with contest(replace(plan, with_peers=False), itl_ms=ITL_MS) as on:
        on.warm_up(PACED)
        seen = [[_paced(on, target) for target in on.targets] for _ in range(plan.rounds)]
        by_target = zip(on.targets, zip(*seen, strict=True), strict=True)
        rows = [row for target, of in by_target for row in _paced_rows(target, of)]
        rows += _added_delays(rows)
        checks = [on.close_books()]
    offered = PACED_STREAMS / ITL_MS * 1_000
    title = f"Chunks on one core: {PACED_STREAMS:,} streams, a token each {ITL_MS:g} ms"
    return Table(title, rows, checks, [f"At most {offered:,.0f} chunks/s are offered."])


def _rates(on: Contest, name: str, load: wrk.Load, rounds: int) -> Iterator[Row]:
    on.warm_up(load)
    seen = [[_closed_loop(on, target, load) for target in on.targets] for _ in range(rounds)]
    by_target = list(zip(on.targets, zip(*seen, strict=True), strict=True))
    rates = [Row(name, target.name, "/s", [rate for rate, _ in of]) for target, of in by_target]
    _, ours, *theirs = rates
    yield from rates
    yield from (ratio(name, ours, other) for other in theirs)
    for target, of in by_target:
        if target.child:
            yield Row(f"CPU, {name}", target.name, "µs", [cpu_us for _, cpu_us in of])


def _closed_loop(on: Contest, target: Target, load: wrk.Load) -> tuple[float, float]:
    """Return answers a second, and the CPU time that each took of the target in microseconds."""
    before = target.cpu_seconds
    outcome = on.run(target, load)
    return outcome.answers_per_second, (target.cpu_seconds - before) / outcome.answers * 1e6


def _memory(target: Target) -> Row:
    return Row("memory after the runs", target.name, "MB", [target.memory_bytes / 1e6])


def _paced(on: Contest, target: Target) -> tuple[Window, Probe, float]:
    """Return what was measured in the middle of a run, and the median stream's milliseconds."""
    measured = PACED_SECONDS - PACED_SKIP_SECONDS - 1
    probe = Probe(target, PACED.bodies, PROBES)
    window = Window(on.engine.base_url, target, PACED_SKIP_SECONDS, measured, probe)
    return window, probe, on.run(target, PACED, window).p50_us / 1e3


def _added_delays(rows: Sequence[Row]) -> Iterator[Row]:
    for percent in (50, 99):
        figure = f"p{percent}, a chunk on its way"
        direct, *through = [row for row in rows if row.figure == figure]
        yield from (difference(f"added, {figure}", row, direct) for row in through)


def _paced_rows(target: Target, of: tuple[tuple[Window, Probe, float], ...]) -> Iterator[Row]:
    windows = [window for window, _, _ in of]
    rates = [window.tokens_per_second for window in windows]
    yield Row("streamed chunks", target.name, "/s", rates)
    yield Row("median length of a stream", target.name, "ms", [length for *_, length in of])
    for percent in (50, 99):
        delays = [percentile(probe.delays_ms, percent) for _, probe, _ in of]
        yield Row(f"p{percent}, a chunk on its way", target.name, "ms", delays)
    if target.child:
        shares = [window.cpu_share for window in windows]
        each = [share / rate * 1e6 for share, rate in zip(shares, rates, strict=True)]
        yield Row("CPU used", target.name, "of a core", shares)
        yield Row("CPU, each chunk", target.name, "µs", each)
