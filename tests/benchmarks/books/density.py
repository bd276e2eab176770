"""Bytes of the books after a day of many small customers, spread over its 1,440 minutes."""

from datetime import UTC, datetime, timedelta

from tests.benchmarks.books.past import organizations
from tests.benchmarks.books.server import serving
from tests.benchmarks.books.sizes import bytes_an_event, sizes
from tests.benchmarks.books.stage import stage
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, ratio


def measure(plan: Plan) -> Table:
    """Return bytes by kind, and the ledger's over the events'."""
    many = organizations(plan)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    target = f"{plan.events:,} events"
    with serving(plan.folder) as server, stage(server, many, others=1) as on:
        before = sizes(on.database)
        on.others[0].run("day.live", yesterday, plan.events)
        after = sizes(on.database)
        checks = [on.prove(plan.events)]
        grown = {name: after[name] - before[name] for name in after}
        ledger, events = (
            Row(f"{name}, grown", target, "bytes", [grown[name]]) for name in ("ledger", "events")
        )
        rows = [
            *bytes_an_event(on.database, plan.events, target),
            *(ledger, events, ratio("ledger ÷ events", ledger, events)),
        ]
        remarks = [server.settings()]
    title = f"Bytes: a day of {many:,} organizations, minute by minute, closed and sealed"
    return Table(title, rows, checks, remarks)
