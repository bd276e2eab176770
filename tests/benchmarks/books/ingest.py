"""Exactly-once ingest of full batches beside followers and lease polls, and with repeats in it."""

import time
from collections.abc import Iterator, Sequence

from serving.contract.usage import EVENTS_MAX
from tests.benchmarks.books.results import Fed, Followed
from tests.benchmarks.books.server import Server, serving
from tests.benchmarks.books.sizes import bytes_an_event
from tests.benchmarks.books.stage import GATEWAYS, Stage, stage
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile

KEYS_EACH = {50: 4, 10_000: 1}
"""Keys of each organization, by how many organizations there are."""
WINDOWS = 6
"""The run is told in so many parts: a rate that falls is seen."""


def measure(plan: Plan) -> Table:
    """Return events a second, the followers' lag and what a lease takes, for each world."""
    with serving(plan.folder) as server:
        rows, checks = [], []
        for organizations in KEYS_EACH:
            more, proved = _measure(server, organizations, plan.seconds)
            rows += more
            checks.append(f"{organizations:,} organizations: {proved}")
        remarks = [server.settings()]
    title = (
        f"Exactly-once ingest: {len(GATEWAYS)} gateways, batches of {EVENTS_MAX:,}, four limited"
        f" budgets and leases an event, {plan.seconds} s"
    )
    return Table(title, rows, checks, remarks)


def measure_repeats(plan: Plan) -> Table:
    """Return how many events a second are taken in when half of them are repeats."""
    with serving(plan.folder) as server, stage(server, 50, keys_each=4) as on:
        ready = _get_ready(on)
        rounds = [_round(on, seed) for seed in range(plan.rounds)]
        feds = [fed for one in rounds for fed in one[0]]
        accepted, duplicates = sum(f.accepted for f in feds), sum(f.duplicates for f in feds)
        _follow_to_the_end(on)
        checks = [on.prove(ready + accepted), f"{duplicates:,} were told to be repeats"]
        remarks = [server.settings()]
    rates = [sum(f.accepted + f.duplicates for f in fed) / seconds for fed, seconds in rounds]
    rows = [
        Row("events taken in", "half of them repeats", "events/s", rates),
        *_costs(feds, accepted + duplicates, "half of them repeats"),
    ]
    return Table("Ingest with repeats, permuted across batches", rows, checks, remarks)


def _measure(server: Server, organizations: int, seconds: int) -> tuple[list[Row], str]:
    with stage(server, organizations, keys_each=KEYS_EACH[organizations]) as on:
        ready = _get_ready(on)
        begins, cpu = time.time(), server.process.cpu_seconds
        until = begins + seconds
        following = on.others[0].start("beside.follow_until", until)
        probing = on.others[1].start("beside.probe", "gw_3", until)
        feeding = [
            w.start("feeding.feed", g, until) for w, g in zip(on.feeders, GATEWAYS, strict=True)
        ]
        feds = [one.result() for one in feeding]
        cpu = server.process.cpu_seconds - cpu
        probed, followed = probing.result(), following.result()
        accepted = sum(fed.accepted for fed in feds)
        proved = on.prove(ready + accepted)
        target = f"{organizations:,} organizations"
        rows = [
            *_rates(feds, begins, target),
            *_costs(feds, accepted, target),
            Row("PostgreSQL's CPU, all of it", target, "µs/event", [cpu * 1e6 / accepted]),
            *_beside(followed, probed, target),
            *bytes_an_event(on.database, ready + accepted, target),
        ]
    return rows, proved


def _get_ready(on: Stage) -> int:
    """Let each gateway fetch leases and send a batch; return how many events that were."""
    return sum(on.each_gateway("feeding.get_ready"))


def _round(on: Stage, seed: int) -> tuple[list[Fed], float]:
    """Return what a round took in, and the seconds of the slower process."""
    feds = on.each_gateway("feeding.feed_repeats", seed)
    return feds, max(fed.seconds for fed in feds)


def _follow_to_the_end(on: Stage) -> None:
    on.others[0].run("beside.follow_until", 0.0)


def _rates(feds: Sequence[Fed], begins: float, target: str) -> Iterator[Row]:
    """Return the rate of the whole run with both terms, and of each part of it."""
    done_at = sorted(at for fed in feds for at in fed.done_at)
    events, seconds = sum(fed.accepted for fed in feds), done_at[-1] - begins
    width = seconds / WINDOWS
    parts = [int(min((at - begins) / width, WINDOWS - 1)) for at in done_at]
    rates = [parts.count(part) * EVENTS_MAX / width for part in range(WINDOWS)]
    yield Row("events", target, "events", [events])
    yield Row("seconds", target, "s", [seconds])
    yield Row("events ÷ seconds", target, "events/s", [events / seconds])
    yield Row("by sixths of the run", target, "events/s", rates)


def _costs(feds: Sequence[Fed], events: int, target: str) -> Iterator[Row]:
    """Return the CPU time of an event, in control's process and in its PostgreSQL backend."""
    for name, used in (
        ("Python's CPU, ingest", [fed.python_seconds for fed in feds]),
        ("PostgreSQL's CPU, ingest", [fed.backend_seconds for fed in feds]),
    ):
        yield Row(name, target, "µs/event", [sum(used) * 1e6 / events])


def _beside(followed: Followed, milliseconds: Sequence[float], target: str) -> Iterator[Row]:
    yield Row("followers' lag at most", target, "s", [followed.lag_max_seconds])
    yield Row("followers at the end after", target, "s", [followed.catch_up_seconds])
    yield Row("four leases granted, p50", target, "ms", [percentile(milliseconds, 50)])
    yield Row("four leases granted, p99", target, "ms", [percentile(milliseconds, 99)])
