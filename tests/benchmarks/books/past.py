"""The database of months of usage, made once for the benchmarks that read it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import typer

from tests.benchmarks.books.server import Server, serving
from tests.benchmarks.books.stage import Stage
from tests.benchmarks.books.worker import workers
from tests.benchmarks.plan import Plan

NAME = "books_past"
EVENTS_EACH = 1000
"""Of an organization, on average; 1,000 organizations at most."""
ORGANIZATIONS_MAX, ORGANIZATIONS_MIN = 1000, 20


def organizations(plan: Plan) -> int:
    """Return how many organizations there are among so many events."""
    return max(min(plan.events // EVENTS_EACH, ORGANIZATIONS_MAX), ORGANIZATIONS_MIN)


@contextmanager
def past(plan: Plan) -> Iterator[tuple[Server, Stage]]:
    """Serve months of usage, made by the first benchmark that asks for them."""
    with serving(plan.folder) as server:
        found = server.find(NAME)
        database = found or server.database(NAME)
        with workers(database, 1) as hands:
            if found is None:
                began = time.monotonic()
                hands[0].run("world.prepare_database")
                today = datetime.now(UTC).date()
                wanted = (database.superuser_url, organizations(plan), plan.events, today)
                hands[0].run("history.write_history", *wanted)
                typer.echo(f"months of usage took {time.monotonic() - began:.0f} s", err=True)
            yield server, Stage(database, [], hands)
