"""Every check of the books over many open events and 90 sealed days."""

from tests.benchmarks.books.past import past
from tests.benchmarks.books.sizes import bytes_an_event
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table


def measure(plan: Plan) -> Table:
    """Return how long all checks take together, one sealed day hashed anew among them."""
    with past(plan) as (server, on):
        worker = on.others[0]
        timed = [worker.run("proof.timed_checks") for _ in range(plan.rounds)]
        stored, days, seals = worker.run("proof.count_past")
        target = f"{stored:,} events"
        rows = [
            Row("check-integrity", target, "s", [seconds for seconds, _ in timed]),
            *bytes_an_event(on.database, stored, target),
        ]
        remarks = [server.settings()]
    failed = [sentence for _, broken in timed for sentence in broken]
    if failed:
        raise BenchmarkFailed("the books are wrong: " + "; ".join(failed))
    checks = [f"all checks hold; {days} days are sealed by {seals:,} seals"]
    title = f"Integrity: {plan.events:,} open events, {days} sealed days"
    return Table(title, rows, checks, remarks)
