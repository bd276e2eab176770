"""Stripe's webhooks in a storm: each delivered three times, in an order of chance, to two processes
of control, while a third looks at what they name."""

import time

from tests.benchmarks.books.server import Server, serving
from tests.benchmarks.books.stage import Stage, stage
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile

EVENTS = 10_000
TIMES = 3
ORGANIZATIONS = 100


def measure(plan: Plan) -> Table:
    """Return deliveries a second, from the first to the last look, with what proves them."""
    with serving(plan.folder) as server:
        rows, checks = _measure(server)
        remarks = [server.settings()]
    title = f"Stripe's webhooks: {EVENTS:,} events, each {TIMES} times in random order"
    return Table(title, rows, checks, remarks)


def _measure(server: Server) -> tuple[list[Row], list[str]]:
    with stage(server, ORGANIZATIONS, others=2) as on:
        stripe, looker = on.others
        url, events, cents = stripe.run("webhooks.prepare", EVENTS)
        began = time.perf_counter()
        looking = looker.start("webhooks.look", url, len(events))
        posting = [
            feeder.start("webhooks.post", url, events, TIMES, seed, len(on.feeders))
            for seed, feeder in enumerate(on.feeders)
        ]
        milliseconds = [each for one in posting for each in one.result()]
        answered = time.perf_counter() - began
        looked = looking.result()
        seconds = time.perf_counter() - began
        checks = _prove(on, url, events, cents)
        stripe.run("webhooks.end")
    count, target = len(events) * TIMES, f"{ORGANIZATIONS} organizations"
    return [
        Row("deliveries", target, "deliveries", [count]),
        Row("seconds until all were looked at", target, "s", [seconds]),
        Row("deliveries ÷ seconds", target, "deliveries/s", [count / seconds]),
        Row("deliveries answered", target, "deliveries/s", [count / answered]),
        Row("an answer, p50", target, "ms", [percentile(milliseconds, 50)]),
        Row("an answer, p99", target, "ms", [percentile(milliseconds, 99)]),
        Row("events looked at", target, "events", [looked]),
    ], checks


def _prove(on: Stage, url: str, events: list[dict], cents: int) -> list[str]:
    stored, waiting, booked, payments = on.others[1].run("webhooks.count")
    if (stored, waiting, booked) != (len(events), 0, cents):
        raise BenchmarkFailed(
            f"{len(events)} events and {cents} cents were sent; {stored} are there, {waiting} wait,"
            f" {booked} cents are booked"
        )
    more = on.others[1].run("webhooks.send_again", url, events[:500])
    if more != booked:
        raise BenchmarkFailed(f"a repeat changed {booked} cents into {more}")
    failed, held = on.others[1].run("proof.failed_checks")
    if failed:
        raise BenchmarkFailed("the books are wrong: " + "; ".join(failed))
    return [
        f"{stored:,} events are there once, {payments:,} payments of {booked / 100:,.2f} dollars "
        f"are booked once, and all {held} checks of the books hold"
    ]
