"""The journal: usage that billing has not acknowledged, on the gateway's own disk.

SQLite in WAL mode with `synchronous=FULL`. A row is `open` while an engine works (written behind,
not waited for), `done` when its final event is durable; when billing has it, it is kept for a day
more (`kept.py`).
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from serving.contract.codec import encode
from serving.contract.ids import new_id
from serving.contract.usage import LeaseCharge, UsageEvent
from serving.usage import kept
from serving.usage.writer import JournalUnavailable, Row, Work, Writer

log = structlog.get_logger(__name__)

T = TypeVar("T")
BUSY_SECONDS = 5.0
"""How long a new life waits for the old one to let go of the file."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS gateway (gateway_id TEXT PRIMARY KEY, probes INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS events (
    event_id TEXT PRIMARY KEY, state TEXT NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    lease_id TEXT PRIMARY KEY, budget_id TEXT NOT NULL,
    granted_nanos INTEGER NOT NULL, charged_nanos INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lineage (lineage TEXT NOT NULL);
"""
FINISH_LOST = "UPDATE events SET state = 'done' WHERE state = 'open'"
NEXT_DONE = "SELECT event_id, body FROM events WHERE state = 'done' ORDER BY event_id LIMIT ?"
DELETE_EVENTS = "DELETE FROM events WHERE event_id IN (SELECT value FROM json_each(?))"
PUT_LEASE = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, 0)"
DELETE_LEASES = "DELETE FROM leases WHERE lease_id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class KnownLease:
    """A lease as the journal remembers it."""

    lease_id: str
    budget_id: str
    granted_nanos: int
    charged_nanos: int
    unacknowledged: int


class Charged(msgspec.Struct):
    """Of an event, what the leases need to know."""

    charges: tuple[LeaseCharge, ...] = ()


class Journal:
    """What is put into the file, and taken out of it; `writer.py` is its one thread."""

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float = BUSY_SECONDS,
        kept_bytes_max: int = kept.KEPT_BYTES_MAX,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.done_rows = 0
        self.committed = asyncio.Event()
        """Set at each commit of done rows; the shipper clears it."""
        self._now = now
        self._kept_bytes_max = kept_bytes_max
        self._connection = _open(path, busy_seconds)
        self.gateway_id, self.left_leases = self._recover()
        self.lineage = self._known_lineage()
        """The database of billing that this gateway heard of last; empty before the first."""
        self.kept_bytes = kept.total_bytes(self._connection)
        self._writer = Writer(self._connection, self._count)

    @property
    def healthy(self) -> bool:
        """Whether the disk took what it was given last."""
        return self._writer.healthy

    def open(self, event: UsageEvent) -> None:
        """Note, without waiting, what to report should this process die now."""
        self._writer.add(Work(Row(event.event_id, "open", encode(event))))

    async def commit(self, event: UsageEvent) -> None:
        """Make the final event durable. Raises JournalUnavailable."""
        row = Row(event.event_id, "done", encode(event), event.charges)
        await self._writer.write(Work(row))

    def commit_later(self, event: UsageEvent) -> None:
        """Make the final event durable as soon as the disk allows."""
        self._writer.add(Work(Row(event.event_id, "done", encode(event), event.charges)))

    async def next_done(self, limit: int) -> list[tuple[str, bytes]]:
        """Return the oldest done rows: event id and body."""
        return await self._ask(lambda db: db.execute(NEXT_DONE, (limit,)).fetchall())

    async def keep(self, rows: list[tuple[str, bytes]], lineage: str) -> None:
        """Put away done rows that the database of `lineage` has acknowledged."""
        body = await asyncio.to_thread(kept.pack, [body for _, body in rows])
        event_ids = msgspec.json.encode([event_id for event_id, _ in rows]).decode()
        now, excess_bytes = int(self._now()), self.kept_bytes + len(body) - self._kept_bytes_max

        def move(db: sqlite3.Connection) -> int:
            db.execute(DELETE_EVENTS, (event_ids,))
            kept.insert(db, body, len(rows), lineage, now)
            return kept.prune(db, lineage=lineage, now=now, excess_bytes=excess_bytes)

        freed_bytes = await self._ask(move)
        self.kept_bytes += len(body) - freed_bytes
        self.done_rows -= len(rows)

    async def stale(self, lineage: str, *, after: int, limit: int) -> kept.StaleBatches:
        """Return about `limit` kept events that the database of `lineage` has not acknowledged,
        from batches after `after`."""
        return await self._ask(lambda db: kept.stale(db, lineage=lineage, after=after, limit=limit))

    async def mark(self, batch_ids: list[int], lineage: str) -> None:
        """Note that the database of `lineage` has these kept batches too."""
        await self._ask(lambda db: kept.mark(db, batch_ids, lineage))

    def note_lineage(self, lineage: str) -> None:
        """Remember which database billing speaks for."""

        def note(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM lineage")
            db.execute("INSERT INTO lineage VALUES (?)", (lineage,))

        self._writer.add(Work(job=note))

    def note_lease(self, lease_id: str, budget_id: str, granted_nanos: int) -> None:
        """Remember a lease, so that the next life of this gateway can return it."""
        values = (lease_id, budget_id, granted_nanos)
        self._writer.add(Work(job=lambda db: db.execute(PUT_LEASE, values).rowcount))

    def forget_leases(self, lease_ids: list[str]) -> None:
        """Forget leases that are closed."""
        values = (msgspec.json.encode(lease_ids).decode(),)
        self._writer.add(Work(job=lambda db: db.execute(DELETE_LEASES, values).rowcount))

    async def close(self) -> None:
        """Write what waits, if the disk takes it, and end the thread."""
        with contextlib.suppress(JournalUnavailable):
            await self._ask(lambda db: None)
        await self._writer.close()

    async def _ask(self, job: Callable[[sqlite3.Connection], T]) -> T:
        result: T = await self._writer.write(Work(job=job))
        return result

    def _count(self, rows: list[Row]) -> None:
        """Hear what is durable now."""
        done_rows = sum(row.state == "done" for row in rows)
        if done_rows:
            self.done_rows += done_rows
            self.committed.set()

    def _recover(self) -> tuple[str, list[KnownLease]]:
        """Finish what a dead life left open, and learn who we are and what we owe."""
        db = self._connection
        db.execute(
            "INSERT INTO gateway (gateway_id) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM gateway)",
            (f"gw_{new_id()}",),
        )
        lost = db.execute(FINISH_LOST).rowcount
        if lost:
            log.warning("requests_lost_with_previous_life", count=lost)
        waiting: dict[str, int] = {}
        for (body,) in db.execute("SELECT body FROM events"):
            self.done_rows += 1
            for charge in msgspec.json.decode(body, type=Charged).charges:
                waiting[charge.lease_id] = waiting.get(charge.lease_id, 0) + 1
        leases = [
            KnownLease(lease_id, budget_id, granted, charged, waiting.get(lease_id, 0))
            for lease_id, budget_id, granted, charged in db.execute("SELECT * FROM leases")
        ]
        return db.execute("SELECT gateway_id FROM gateway").fetchone()[0], leases

    def _known_lineage(self) -> str:
        row = self._connection.execute("SELECT lineage FROM lineage").fetchone()
        return "" if row is None else row[0]


def _open(path: Path, busy_seconds: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=busy_seconds
    )
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(SCHEMA + kept.SCHEMA)
    return connection
