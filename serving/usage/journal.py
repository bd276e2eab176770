"""The journal: usage that billing has not acknowledged, on the gateway's own disk.

SQLite in WAL mode with `synchronous=FULL`, written by one thread that commits whatever came
together. A row is `open` while an engine works (written behind, not waited for), `done` when
its final event is durable, and gone when billing has it.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from serving.contract.codec import encode
from serving.contract.ids import new_id
from serving.contract.usage import LeaseCharge, UsageEvent

log = structlog.get_logger(__name__)

T = TypeVar("T")
BATCH_MAX = 2_000
PROBE_SECONDS = 1.0
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
"""
PUT_EVENT = "INSERT OR REPLACE INTO events VALUES (?, ?, ?)"
CHARGE_LEASE = "UPDATE leases SET charged_nanos = charged_nanos + ? WHERE lease_id = ?"
FINISH_LOST = "UPDATE events SET state = 'done' WHERE state = 'open'"
NEXT_DONE = "SELECT event_id, body FROM events WHERE state = 'done' ORDER BY event_id LIMIT ?"
DELETE_EVENT = "DELETE FROM events WHERE event_id = ?"
PUT_LEASE = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, 0)"
DELETE_LEASE = "DELETE FROM leases WHERE lease_id = ?"
PROBE = "UPDATE gateway SET probes = probes + 1"


class JournalUnavailable(Exception):
    """The disk took nothing: what was to be durable is not."""


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


@dataclass(frozen=True, slots=True)
class Row:
    """An event's row."""

    event_id: str
    state: str
    body: bytes
    charges: tuple[LeaseCharge, ...] = ()


@dataclass(slots=True)
class Work:
    """Something for the writer thread: a row, or a job on the connection.

    Without `done` nobody waits, and the writer tries again until the disk takes it.
    """

    row: Row | None = None
    job: Callable[[sqlite3.Connection], Any] | None = None
    done: asyncio.Future[Any] | None = None
    result: Any = field(default=None)


class Journal:
    """One writer thread; the event loop only queues and awaits."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.healthy = True
        self.done_rows = 0
        self.committed = asyncio.Event()
        """Set at each commit of done rows; the shipper clears it."""
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._connection = _open(path, busy_seconds)
        self.gateway_id, self.left_leases = self._recover()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_on, name="journal", daemon=True)
        self._thread.start()

    def open(self, event: UsageEvent) -> None:
        """Note, without waiting, what to report should this process die now."""
        self._queue.put(Work(Row(event.event_id, "open", encode(event))))

    async def commit(self, event: UsageEvent) -> None:
        """Make the final event durable. Raises JournalUnavailable."""
        row = Row(event.event_id, "done", encode(event), event.charges)
        await self._await(Work(row))

    def commit_later(self, event: UsageEvent) -> None:
        """Make the final event durable as soon as the disk allows."""
        self._queue.put(Work(Row(event.event_id, "done", encode(event), event.charges)))

    async def next_done(self, limit: int) -> list[tuple[str, bytes]]:
        """Return the oldest done rows: event id and body."""
        return await self._ask(lambda db: db.execute(NEXT_DONE, (limit,)).fetchall())

    async def forget(self, event_ids: list[str]) -> None:
        """Delete what billing acknowledged."""
        rows = [(event_id,) for event_id in event_ids]
        await self._ask(lambda db: db.executemany(DELETE_EVENT, rows).rowcount)
        self.done_rows -= len(event_ids)

    def note_lease(self, lease_id: str, budget_id: str, granted_nanos: int) -> None:
        """Remember a lease, so that the next life of this gateway can return it."""
        values = (lease_id, budget_id, granted_nanos)
        self._queue.put(Work(job=lambda db: db.execute(PUT_LEASE, values).rowcount))

    def forget_lease(self, lease_id: str) -> None:
        """Forget a lease that is closed."""
        self._queue.put(Work(job=lambda db: db.execute(DELETE_LEASE, (lease_id,)).rowcount))

    async def close(self) -> None:
        """Write what is queued and end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _ask(self, job: Callable[[sqlite3.Connection], T]) -> T:
        result: T = await self._await(Work(job=job))
        return result

    async def _await(self, work: Work) -> Any:
        work.done = self._loop.create_future()
        self._queue.put(work)
        return await work.done

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

    def _write_on(self) -> None:
        behind: list[Work] = []
        ended = False
        while not ended:
            fresh, ended = self._next_batch(wait_seconds=PROBE_SECONDS if behind else None)
            batch = behind + fresh
            error = self._write(batch)
            behind = [work for work in batch if work.done is None] if error else []
            self._loop.call_soon_threadsafe(self._settle, batch, error)
        self._connection.close()

    def _next_batch(self, wait_seconds: float | None) -> tuple[list[Work], bool]:
        batch: list[Work] = []
        try:
            work = self._queue.get(timeout=wait_seconds)
            while work is not None:
                batch.append(work)
                if len(batch) >= BATCH_MAX:
                    return batch, False
                work = self._queue.get_nowait()
        except queue.Empty:
            return batch, False
        return batch, True

    def _write(self, batch: list[Work]) -> Exception | None:
        db = self._connection
        rows = {work.row.event_id: work.row for work in batch if work.row is not None}
        try:
            db.execute("BEGIN IMMEDIATE")
            if not self.healthy:
                db.execute(PROBE)
            db.executemany(PUT_EVENT, [(r.event_id, r.state, r.body) for r in rows.values()])
            for work in batch:
                if work.job is not None:
                    work.result = work.job(db)
            charges = [(c.charged_nanos, c.lease_id) for r in rows.values() for c in r.charges]
            db.executemany(CHARGE_LEASE, charges)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            return error
        return None

    def _settle(self, batch: list[Work], error: Exception | None) -> None:
        """On the event loop: tell those who wait."""
        if error is not None and self.healthy:
            log.error("journal_unavailable", error=str(error))
        self.healthy = error is None
        done_rows = sum(work.row is not None and work.row.state == "done" for work in batch)
        if error is None and done_rows:
            self.done_rows += done_rows
            self.committed.set()
        for work in batch:
            if work.done is None or work.done.done():
                continue
            if error is None:
                work.done.set_result(work.result)
            else:
                work.done.set_exception(JournalUnavailable(str(error)))


def _open(path: Path, busy_seconds: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=busy_seconds
    )
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(SCHEMA)
    return connection
