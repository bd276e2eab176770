"""The close of a month for every organization, and the documents that come of it."""

from datetime import UTC, datetime

from billing.invoicing.periods import last_period
from tests.benchmarks.books.past import organizations
from tests.benchmarks.books.server import serving
from tests.benchmarks.books.worker import workers
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile

NAME = "books_close"
DOCUMENTS = 60


def measure(plan: Plan) -> Table:
    """Return how long the close takes, and what a document takes and weighs."""
    count = organizations(plan)
    starts_on = last_period(datetime.now(UTC)).starts_on
    with serving(plan.folder) as server:
        database = server.database(NAME)
        with workers(database, 1) as hands:
            hands[0].run("world.prepare_database")
            wanted = (database.superuser_url, count, plan.events, starts_on)
            hours = hands[0].run("month.write_month", *wanted)
            due_seconds, due = hands[0].run("month.timed_due", starts_on)
            seconds, invoices, lines, wrong = hands[0].run("month.timed_close", starts_on)
            documents = hands[0].run("month.timed_documents", min(DOCUMENTS, count - 1))
        server.drop(NAME)
        remarks = [server.settings()]
    if wrong or not invoices == due == count:
        raise BenchmarkFailed(f"{invoices} of {count} invoices, {due} due; " + "; ".join(wrong[:5]))
    milliseconds = [taken for taken, _ in documents]
    target = f"{count:,} organizations, {plan.events:,} events"
    rows = [
        Row("who is due", target, "ms", [due_seconds * 1000]),
        Row("close-month", target, "s", [seconds]),
        Row("an invoice", target, "ms", [seconds * 1000 / invoices]),
        Row("PDF", f"{lines // invoices} lines, warm", "ms", milliseconds),
        Row("PDF, p95", f"{lines // invoices} lines, warm", "ms", [percentile(milliseconds, 95)]),
        Row("PDF, largest", "A4", "kB", [max(size for _, size in documents) / 1000]),
    ]
    checks = [
        f"{invoices:,} invoices with {lines:,} lines from {hours:,} hour rollups; invoices and what"
        " is not invoiced are the ledger's receivable to the nano"
    ]
    return Table(f"Close of a month: {target}", rows, checks, remarks)
