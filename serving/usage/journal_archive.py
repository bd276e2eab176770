"""Acknowledged events, kept for a day: a database restored from a backup gets them again.

Each row is one batch as billing acknowledged it, compressed, with the lineage of the database
that has it.
"""

import sqlite3
import zlib
from dataclasses import dataclass

import msgspec
import structlog

from serving.contract.usage import KEPT_SECONDS

log = structlog.get_logger(__name__)

KEPT_BYTES_MAX = 2 * 2**30
"""The most that is kept, compressed: about 15 million events."""
LEVEL = 1
"""The level of compression: events are alike, and the least effort makes them a sixth."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS kept (
    batch_id INTEGER PRIMARY KEY, kept_at INTEGER NOT NULL, lineage TEXT NOT NULL,
    event_count INTEGER NOT NULL, bytes INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS kept_by_age ON kept (kept_at);
"""
INSERT = "INSERT INTO kept (kept_at, lineage, event_count, bytes, body) VALUES (?, ?, ?, ?, ?)"
PRUNE_OLD = "DELETE FROM kept WHERE kept_at < ? AND lineage = ? RETURNING bytes"
PRUNE_OLDEST = """
DELETE FROM kept WHERE batch_id = (SELECT min(batch_id) FROM kept WHERE lineage = ?)
RETURNING bytes
"""
STALE = """
SELECT batch_id, event_count, body FROM kept WHERE batch_id > ? AND lineage <> ?
ORDER BY batch_id
"""
MARK = "UPDATE kept SET lineage = ? WHERE batch_id IN (SELECT value FROM json_each(?))"
TOTAL = "SELECT coalesce(sum(bytes), 0) FROM kept"
LATEST = "SELECT CAST(kept_at AS INTEGER) FROM kept ORDER BY batch_id DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class UnacknowledgedBatches:
    """Kept batches that the database of today may lack: their ids and their events."""

    batch_ids: list[int]
    events: list[bytes]


def pack(bodies: list[bytes]) -> bytes:
    """Return the bodies of a batch's events, compressed."""
    return zlib.compress(b"[" + b",".join(bodies) + b"]", LEVEL)


def unpack(body: bytes) -> list[bytes]:
    """Return the bodies of a batch's events."""
    events = msgspec.json.decode(zlib.decompress(body), type=list[msgspec.Raw])
    return [bytes(event) for event in events]


def insert(db: sqlite3.Connection, body: bytes, count: int, lineage: str, now: int) -> None:
    """Keep a batch of `count` events that the database of `lineage` has acknowledged."""
    db.execute(INSERT, (now, lineage, count, len(body), body))


def prune(db: sqlite3.Connection, *, lineage: str, now: int, excess_bytes: int) -> int:
    """Delete what is older than a day, and the oldest until `excess_bytes` are free; return the
    bytes freed. Batches that the database of `lineage` lacks stay."""
    freed = sum(size for (size,) in db.execute(PRUNE_OLD, (now - KEPT_SECONDS, lineage)))
    while freed < excess_bytes:
        oldest = db.execute(PRUNE_OLDEST, (lineage,)).fetchone()
        if oldest is None:
            break
        freed += oldest[0]
    return freed


def stale(db: sqlite3.Connection, *, lineage: str, after: int, limit: int) -> UnacknowledgedBatches:
    """Return the batches after `after` that another database than `lineage` acknowledged: about
    `limit` events, and at least one batch where there is one."""
    found, events = UnacknowledgedBatches([], []), 0
    for batch_id, count, body in db.execute(STALE, (after, lineage)):
        if found.batch_ids and events + count > limit:
            break
        events += count
        found.batch_ids.append(batch_id)
        try:
            found.events.extend(unpack(body))
        except (zlib.error, msgspec.DecodeError) as error:
            log.error("kept_batch_unreadable", events=count, error=str(error))
    return found


def mark(db: sqlite3.Connection, batch_ids: list[int], lineage: str) -> None:
    """Note that the database of `lineage` has these batches too."""
    db.execute(MARK, (lineage, msgspec.json.encode(batch_ids).decode()))


def total_bytes(db: sqlite3.Connection) -> int:
    """Return how much is kept."""
    total: int = db.execute(TOTAL).fetchone()[0]
    return total


def latest_at(db: sqlite3.Connection) -> int:
    """Return when the last batch was kept, in seconds since 1970; 0 where none is."""
    row = db.execute(LATEST).fetchone()
    return 0 if row is None else row[0]
