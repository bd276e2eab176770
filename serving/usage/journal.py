"""The journal: usage that billing has not acknowledged, on the gateway's own disk.

SQLite in WAL mode with `synchronous=FULL`, written by one thread that commits whatever came
together. A row is `open` while an engine works (written behind, not waited for), `done` when
its final event is durable, and gone when billing has it.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import chain
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
BEHIND_SECONDS = 0.02
"""How long an open row waits for company; one whose request ends sooner is never written."""
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
PUT_EVENTS = "INSERT OR REPLACE INTO events VALUES "
EVENT_VALUES = "(?, ?, ?)"
CHARGE_LEASE = "UPDATE leases SET charged_nanos = charged_nanos + ? WHERE lease_id = ?"
FINISH_LOST = "UPDATE events SET state = 'done' WHERE state = 'open'"
NEXT_DONE = "SELECT event_id, body FROM events WHERE state = 'done' ORDER BY event_id LIMIT ?"
DELETE_EVENTS = "DELETE FROM events WHERE event_id IN (SELECT value FROM json_each(?))"
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

    def answer(self, error: Exception | None) -> None:
        """Tell the one who waits, if anybody does and has not given up."""
        if self.done is None or self.done.done():
            return
        if error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(JournalUnavailable(str(error)))


class Journal:
    """One writer thread; the event loop only queues and awaits."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.healthy = True
        self.done_rows = 0
        self.committed = asyncio.Event()
        """Set at each commit of done rows; the shipper clears it."""
        self._batches: queue.SimpleQueue[list[Work] | None] = queue.SimpleQueue()
        self._waiting: list[Work] = []
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._connection = _open(path, busy_seconds)
        self.gateway_id, self.left_leases = self._recover()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_on, name="journal", daemon=True)
        self._thread.start()

    def open(self, event: UsageEvent) -> None:
        """Note, without waiting, what to report should this process die now."""
        self._add(Work(Row(event.event_id, "open", encode(event))))

    async def commit(self, event: UsageEvent) -> None:
        """Make the final event durable. Raises JournalUnavailable."""
        row = Row(event.event_id, "done", encode(event), event.charges)
        await self._await(Work(row))

    def commit_later(self, event: UsageEvent) -> None:
        """Make the final event durable as soon as the disk allows."""
        self._add(Work(Row(event.event_id, "done", encode(event), event.charges)))

    async def next_done(self, limit: int) -> list[tuple[str, bytes]]:
        """Return the oldest done rows: event id and body."""
        return await self._ask(lambda db: db.execute(NEXT_DONE, (limit,)).fetchall())

    async def forget(self, event_ids: list[str]) -> None:
        """Delete what billing acknowledged."""
        rows = msgspec.json.encode(event_ids).decode()
        await self._ask(lambda db: db.execute(DELETE_EVENTS, (rows,)).rowcount)
        self.done_rows -= len(event_ids)

    def note_lease(self, lease_id: str, budget_id: str, granted_nanos: int) -> None:
        """Remember a lease, so that the next life of this gateway can return it."""
        values = (lease_id, budget_id, granted_nanos)
        self._add(Work(job=lambda db: db.execute(PUT_LEASE, values).rowcount))

    def forget_lease(self, lease_id: str) -> None:
        """Forget a lease that is closed."""
        self._add(Work(job=lambda db: db.execute(DELETE_LEASE, (lease_id,)).rowcount))

    async def close(self) -> None:
        """Write what waits, if the disk takes it, and end the thread."""
        with contextlib.suppress(JournalUnavailable):
            await self._ask(lambda db: None)
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _ask(self, job: Callable[[sqlite3.Connection], T]) -> T:
        result: T = await self._await(Work(job=job))
        return result

    async def _await(self, work: Work) -> Any:
        work.done = self._loop.create_future()
        self._add(work)
        return await work.done

    def _add(self, work: Work) -> None:
        """Queue work for the next batch: at once where somebody waits for it, else soon."""
        self._waiting.append(work)
        if not self._is_writing:
            self._hand_over_in(0.0 if work.done else BEHIND_SECONDS)

    def _hand_over_in(self, seconds: float) -> None:
        """Even at once is the loop's next turn, so that what ends together is written together."""
        due_at = self._loop.time() + seconds
        if self._timer is not None:
            if self._due_at <= due_at:
                return
            self._timer.cancel()
        self._due_at = due_at
        self._timer = self._loop.call_at(due_at, self._hand_over)

    def _hand_over(self) -> None:
        """Give the writer its next batch; what comes meanwhile makes up the one after."""
        self._timer, self._is_writing = None, True
        batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
        self._batches.put(batch)

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
        while (batch := self._batches.get()) is not None:
            error = self._write(batch)
            self._loop.call_soon_threadsafe(self._settle, batch, error)
        self._connection.close()

    def _write(self, batch: list[Work]) -> Exception | None:
        db = self._connection
        rows = {work.row.event_id: work.row for work in batch if work.row is not None}
        try:
            db.execute("BEGIN IMMEDIATE")
            if not self.healthy:
                db.execute(PROBE)
            _put(db, rows.values())
            for work in batch:
                if work.job is not None:
                    work.result = work.job(db)
            db.executemany(CHARGE_LEASE, _charges(rows.values()))
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            return error
        return None

    def _settle(self, batch: list[Work], error: Exception | None) -> None:
        """On the event loop: tell those who wait, and try the rest again after an error."""
        if error is not None and self.healthy:
            log.error("journal_unavailable", error=str(error))
        self.healthy, self._is_writing = error is None, False
        if error is None:
            self._count_done(batch)
        else:
            self._waiting[:0] = [work for work in batch if work.done is None]
        for work in batch:
            work.answer(error)
        if self._waiting:
            is_urgent = any(work.done for work in self._waiting)
            patience = BEHIND_SECONDS if error is None else PROBE_SECONDS
            self._hand_over_in(0.0 if is_urgent else patience)

    def _count_done(self, batch: list[Work]) -> None:
        done_rows = sum(work.row is not None and work.row.state == "done" for work in batch)
        if done_rows:
            self.done_rows += done_rows
            self.committed.set()


def _put(db: sqlite3.Connection, rows: Collection[Row]) -> None:
    """Insert all rows with one statement.

    SQLite lets go of the interpreter lock for every statement and then waits for it in line with
    a busy event loop: a statement a row took most of a commit's time.
    """
    if rows:
        values = [value for row in rows for value in (row.event_id, row.state, row.body)]
        db.execute(PUT_EVENTS + ", ".join([EVENT_VALUES] * len(rows)), values)


def _charges(rows: Collection[Row]) -> list[tuple[int, str]]:
    """Return what the rows take of each lease in all."""
    charges: dict[str, int] = {}
    for charge in chain.from_iterable(row.charges for row in rows):
        charges[charge.lease_id] = charges.get(charge.lease_id, 0) + charge.charged_nanos
    return [(nanos, lease_id) for lease_id, nanos in charges.items()]


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
