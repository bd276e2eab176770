"""The ledger's browser on one organization's account of a million entries: its pages, and the whole
account as a file, while the database is watched for what followers would have to wait for."""

import time
from concurrent.futures import Future
from typing import Any

from tests.benchmarks.books.results import Exported
from tests.benchmarks.books.server import Database, serving
from tests.benchmarks.books.worker import workers
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile

NAME = "books_statement"
VISITS = 20
LOOK_EVERY_SECONDS = 0.05
SNAPSHOT_SECONDS_MAX = 1.0
OLDEST_SNAPSHOT = """
SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
"""
"""How long the oldest transaction has been open that followers and vacuum mind."""


def measure(plan: Plan) -> Table:
    """Return what each page takes, and what the files take and keep others waiting."""
    with serving(plan.folder) as server:
        database = server.database(NAME)
        with workers(database, 1) as hands:
            hands[0].run("world.prepare_database")
            hands[0].run("statement.write_entries", database.superuser_url, plan.events)
            seen = hands[0].run("statement.browse", VISITS)
            files = {
                form: _watched(database, hands[0].start("statement.export", form))
                for form in ("csv", "jsonl")
            }
        server.drop(NAME)
        remarks = [server.settings()]
    rows = [
        row
        for one in seen
        for row in (
            Row("a visit", one.name, "ms", one.milliseconds),
            Row("p95", one.name, "ms", [percentile(one.milliseconds, 95)]),
            Row("queries", one.name, "queries", [one.queries]),
        )
    ]
    for form, (made, snapshot_seconds) in files.items():
        if made.lines != plan.events:
            raise BenchmarkFailed(f"{made.lines} of {plan.events} lines are in the {form}")
        if snapshot_seconds > SNAPSHOT_SECONDS_MAX:
            raise BenchmarkFailed(f"the {form} kept a snapshot for {snapshot_seconds:.1f} s")
        rows += [
            Row("all of it", form, "s", [made.seconds]),
            Row("first bytes after", form, "ms", [made.first_seconds * 1000]),
            Row("oldest snapshot", form, "ms", [snapshot_seconds * 1000]),
            Row("memory it added", form, "MB", [made.added_bytes / 1e6]),
        ]
    checks = [f"both files have {plan.events:,} lines, and the last one's balance is the account's"]
    return Table(f"Ledger: an account of {plan.events:,} entries", rows, checks, remarks)


def _watched(database: Database, running: Future[Any]) -> tuple[Exported, float]:
    """Return what came of an export, and how old its oldest snapshot became."""
    oldest = 0.0
    while not running.done():
        oldest = max(oldest, database.ask(OLDEST_SNAPSHOT)[0][0])
        time.sleep(LOOK_EVERY_SECONDS)
    return running.result(), oldest
