"""Pages and APIs over months of usage, as a member of the largest organization sees them."""

from collections.abc import Iterator

from tests.benchmarks.books.past import organizations, past
from tests.benchmarks.books.results import Seen
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile

VISITS = 40


def measure(plan: Plan) -> Table:
    """Return what each page takes, asks the database, and weighs."""
    with past(plan) as (server, on):
        seen = on.others[0].run("browsing.browse", VISITS)
        remarks = [server.settings()]
    title = (
        f"Pages: {plan.events:,} events of {organizations(plan):,} organizations in 90 days, a"
        f" tenth of them the reader's; {VISITS} visits each"
    )
    return Table(title, [row for one in seen for row in _rows(one)], [], remarks)


def _rows(seen: Seen) -> Iterator[Row]:
    yield Row("a visit", seen.name, "ms", seen.milliseconds)
    yield Row("p95", seen.name, "ms", [percentile(seen.milliseconds, 95)])
    yield Row("queries", seen.name, "queries", [seen.queries])
    yield Row("compressed", seen.name, "kB", [seen.compressed_bytes / 1000])
