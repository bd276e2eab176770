"""How many bytes the books take, by what they are for."""

from collections.abc import Iterator

from tests.benchmarks.books.server import Database
from tests.benchmarks.report import Row

TABLES = {
    "events": "metering_usage_event",
    "rollups": "following_%rollup",
    "leases and budgets": "credit_%",
    "ledger": "ledger_%",
}
"""By LIKE patterns of their names; what else there is grows with customers, not with usage."""
SIZE = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname LIKE '{pattern}'
"""


def sizes(database: Database) -> dict[str, int]:
    """Return bytes by kind, indexes and TOAST included."""
    return {
        name: database.ask(SIZE.format(pattern=f"{pattern}%"))[0][0]
        for name, pattern in TABLES.items()
    }


def bytes_an_event(database: Database, events: int, target: str) -> Iterator[Row]:
    """Return the bytes of each kind and all together, over the events that are there."""
    found = sizes(database)
    for name, size in found.items():
        yield Row(f"{name}, with indexes", target, "bytes/event", [size / events])
    yield Row("all together", target, "bytes/event", [sum(found.values()) / events])
