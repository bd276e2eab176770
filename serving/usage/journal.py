"""The journal: usage that billing has not acknowledged, on the gateway's own disk.

SQLite in WAL mode with `synchronous=FULL`. A row is `open` while an engine works (written behind,
not waited for), `done` when its final event is durable; when billing has it, it is kept for a day
more (`journal_archive.py`).
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from serving.contract.codec import encode
from serving.contract.idempotency import ClaimEnding
from serving.contract.ids import new_id
from serving.contract.usage import UsageEvent
from serving.sqlite_files import is_damage
from serving.usage import journal_archive
from serving.usage.clock import ClockReading
from serving.usage.journal_store import (
    FinishedEvent,
    JournalDamage,
    JournalStore,
    finish_lost,
    finished_events,
    known_lineage,
    latest_event_at,
    recovered_claims,
    recovered_leases,
    unreadable_count,
)
from serving.usage.journal_writer import JournalRow, JournalUnavailable, JournalWriter, WriteTask
from serving.usage.lease import JournaledLease, LeaseTerms

log = structlog.get_logger(__name__)

T = TypeVar("T")
JOURNAL = "journal.sqlite3"
"""The file in a gateway's folder."""
BUSY_SECONDS = 5.0
"""A new process waits this long for the old one to let go of the file."""

COUNT_DONE = "SELECT count(*) FROM events WHERE state = 'done'"
NEXT_DONE = "SELECT event_id, body FROM events WHERE state = 'done' ORDER BY event_id LIMIT ?"
DELETE_EVENTS = "DELETE FROM events WHERE event_id IN (SELECT value FROM json_each(?))"
PUT_LEASE = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, 0)"
PUT_TERMS = "INSERT OR REPLACE INTO lease_terms VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
NOTE_CLOCK = """
UPDATE lease_terms SET noted_at = max(noted_at, ?), clock_offset = max(clock_offset, ?)
"""
END_LEASES = "DELETE FROM lease_terms WHERE lease_id IN (SELECT value FROM json_each(?))"
DELETE_LEASES = "DELETE FROM leases WHERE lease_id IN (SELECT value FROM json_each(?))"
PUT_CLAIM = "INSERT OR REPLACE INTO claims VALUES (?, ?, 0)"
COMPLETE_CLAIM = "UPDATE claims SET is_completed = 1 WHERE event_id = ?"
DELETE_CLAIMS = "DELETE FROM claims WHERE event_id IN (SELECT value FROM json_each(?))"


class Journal:
    """Puts events, leases and claims into the file and takes them out; its one thread is in
    `journal_writer.py`.

    It belongs to the event loop that runs, or to `loop` where a thread opens it.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float = BUSY_SECONDS,
        kept_bytes_max: int = journal_archive.KEPT_BYTES_MAX,
        now: Callable[[], float] = time.time,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.unacknowledged_count = 0
        self.committed = asyncio.Event()
        """Set at each commit of done rows; the shipper clears it."""
        self._now = now
        self._kept_bytes_max = kept_bytes_max
        self._loop = loop or asyncio.get_running_loop()
        self._file = JournalStore(path, busy_seconds)
        self.gateway_id = self.lineage = ""
        """This gateway, and the database of billing that answered last."""
        self.recovered_leases: list[JournaledLease] = []
        self.latest_at = 0.0
        """The latest time, in seconds since 1970, that events say which were written before."""
        self.recovered_claims: list[ClaimEnding] = []
        """Endings of an earlier process's claims that control has yet to hear of."""
        self.kept_bytes = self.unreadable_rows = 0
        try:
            self._recover(self._file.connection)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            self._file.replace(error)
            self._recover(self._file.connection)
        self._writer = JournalWriter(self._file, self._count, self._begin_new_file, self._loop)

    @property
    def healthy(self) -> bool:
        """Whether the disk took what it was given last."""
        return self._writer.healthy

    @property
    def damages(self) -> list[JournalDamage]:
        """The files that were set aside in this life."""
        return self._file.damages

    def open(
        self,
        event_id: str,
        make_lost: Callable[[], UsageEvent],
        held: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Note, without waiting, what to report should this process die while an engine works, and
        what is held for it of each lease."""

        def make() -> JournalRow:
            lost = make_lost()
            return JournalRow(event_id, lost.organization_id, _state_open(held()), encode(lost))

        self._writer.open(event_id, make)

    def commit(self, event: UsageEvent, *, completes_claim: bool = False) -> Awaitable[None]:
        """Make the final event durable, and with it that its claim on an idempotency key completed:
        await what this returns. Raises JournalUnavailable."""
        self._writer.forget(event.event_id)
        work = WriteTask(_done_row(event))
        if completes_claim:
            work.job = lambda db: db.execute(COMPLETE_CLAIM, (event.event_id,)).rowcount
        return self._writer.write(work)

    def commit_later(self, event: UsageEvent) -> None:
        """Make the final event durable as soon as the disk allows."""
        self._writer.forget(event.event_id)
        self._writer.add(WriteTask(_done_row(event)))

    async def next_finished(self, limit: int) -> list[FinishedEvent]:
        """Return the oldest done rows, about so many."""
        while True:
            found, rows = await self._execute(lambda db: _next_done(db, limit))
            self.unacknowledged_count -= found - len(rows)
            self.unreadable_rows += found - len(rows)
            if rows or not found:
                return rows

    async def archive(self, rows: list[FinishedEvent], lineage: str) -> None:
        """Put away done rows that the database of `lineage` has acknowledged."""
        body = await asyncio.to_thread(journal_archive.pack, [row.body for row in rows])
        event_ids = msgspec.json.encode([row.event_id for row in rows]).decode()
        now, excess_bytes = int(self._now()), self.kept_bytes + len(body) - self._kept_bytes_max

        def move(db: sqlite3.Connection) -> int:
            db.execute(DELETE_EVENTS, (event_ids,))
            journal_archive.insert(db, body, len(rows), lineage, now)
            return journal_archive.prune(db, lineage=lineage, now=now, excess_bytes=excess_bytes)

        freed_bytes = await self._execute(move)
        self.kept_bytes += len(body) - freed_bytes
        self.unacknowledged_count -= len(rows)

    async def stale(
        self, lineage: str, *, after: int, limit: int
    ) -> journal_archive.UnacknowledgedBatches:
        """Return about `limit` kept events that the database of `lineage` has not acknowledged,
        from batches after `after`."""
        return await self._execute(
            lambda db: journal_archive.stale(db, lineage=lineage, after=after, limit=limit)
        )

    async def mark(self, batch_ids: list[int], lineage: str) -> None:
        """Note that the database of `lineage` has these kept batches too."""
        await self._execute(lambda db: journal_archive.mark(db, batch_ids, lineage))

    def record_lineage(self, lineage: str) -> None:
        """Remember which database billing speaks for."""

        def note(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM lineage")
            db.execute("INSERT INTO lineage VALUES (?)", (lineage,))

        self._writer.add(WriteTask(job=note))

    def record_lease(
        self, lease_id: str, budget_id: str, granted_nanos: int, terms: LeaseTerms | None = None
    ) -> None:
        """Remember a lease, so that the next life of this gateway can return it, and go on with it
        where its terms are known."""
        lease = (lease_id, budget_id, granted_nanos)

        def note(db: sqlite3.Connection) -> None:
            db.execute(PUT_LEASE, lease)
            if terms is not None:
                db.execute(PUT_TERMS, (lease_id, *astuple(terms)))

        self._writer.add(WriteTask(job=note))

    def record_clock(self, now: ClockReading) -> None:
        """Remember what time it was when leases were adopted, for the process after this one."""
        clock = (now.wall.timestamp(), now.clock_offset)
        self._writer.add(WriteTask(job=lambda db: db.execute(NOTE_CLOCK, clock).rowcount))

    def end_leases(self, lease_ids: list[str]) -> Awaitable[int]:
        """Make durable that no later life goes on with some leases: await what this returns. Raises
        JournalUnavailable."""
        values = (msgspec.json.encode(lease_ids).decode(),)
        return self._writer.write(WriteTask(job=lambda db: db.execute(END_LEASES, values).rowcount))

    def forget_leases(self, lease_ids: list[str]) -> None:
        """Forget leases that are closed."""
        values = (msgspec.json.encode(lease_ids).decode(),)

        def forget(db: sqlite3.Connection) -> None:
            db.execute(END_LEASES, values)
            db.execute(DELETE_LEASES, values)

        self._writer.add(WriteTask(job=forget))

    def record_claim(self, event_id: str, organization_id: str) -> Awaitable[None]:
        """Remember a claim on an idempotency key, so that the next life of this gateway can say how
        it ended: await what this returns. Raises JournalUnavailable."""
        values = (event_id, organization_id)
        return self._writer.write(
            WriteTask(
                job=lambda db: db.execute(PUT_CLAIM, values).rowcount,
                job_organization_id=organization_id,
            )
        )

    def forget_claims(self, event_ids: list[str]) -> None:
        """Forget claims that are over."""
        values = (msgspec.json.encode(event_ids).decode(),)
        self._writer.add(WriteTask(job=lambda db: db.execute(DELETE_CLAIMS, values).rowcount))

    async def close(self) -> None:
        """Write what waits, if the disk takes it, and end the thread."""
        self._writer.hand_over_opened()
        with contextlib.suppress(JournalUnavailable):
            await self._writer.flush()
        await self._writer.close()

    async def _execute(self, job: Callable[[sqlite3.Connection], T]) -> T:
        result: T = await self._writer.write(WriteTask(job=job))
        return result

    def _count(self, rows: list[JournalRow]) -> None:
        """Hear what is durable now."""
        done_rows = sum(row.state == "done" for row in rows)
        if done_rows:
            self.unacknowledged_count += done_rows
            self.committed.set()

    def _begin_new_file(self, db: sqlite3.Connection) -> None:
        """In the writer's thread: make a new file ours, the one before being damaged."""
        db.execute("DELETE FROM gateway")
        db.execute("INSERT INTO gateway (gateway_id) VALUES (?)", (self.gateway_id,))
        self._loop.call_soon_threadsafe(self._count_anew, db.execute(COUNT_DONE).fetchone()[0])

    def _count_anew(self, done_rows: int) -> None:
        self.unacknowledged_count, self.kept_bytes = done_rows, 0

    def _recover(self, db: sqlite3.Connection) -> None:
        """Finish what a dead life left open, and learn who we are and what we owe: in one
        transaction, so that a process that ends here leaves nothing half in doubt."""
        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "INSERT INTO gateway (gateway_id) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM gateway)",
            (f"gw_{new_id()}",),
        )
        if lost := finish_lost(db):
            log.warning("requests_lost_with_previous_life", count=lost)
        rows = finished_events(db, db.execute("SELECT event_id, body FROM events").fetchall())
        self.unacknowledged_count = len(rows)
        self.recovered_leases = recovered_leases(db, rows, is_locked=self._file.is_locked())
        self.latest_at = max(journal_archive.latest_at(db), latest_event_at(db))
        self.recovered_claims = list(recovered_claims(db))
        self.gateway_id = db.execute("SELECT gateway_id FROM gateway").fetchone()[0]
        self.lineage = known_lineage(db)
        self.kept_bytes = journal_archive.total_bytes(db)
        self.unreadable_rows = unreadable_count(db)
        db.execute("COMMIT")


def _state_open(held: Mapping[str, int]) -> str:
    """Return the state of a row whose request is under way: with what is held of which leases."""
    return f"open {msgspec.json.encode(held).decode()}"


def _done_row(event: UsageEvent) -> JournalRow:
    return JournalRow(event.event_id, event.organization_id, "done", encode(event), event.charges)


def _next_done(db: sqlite3.Connection, limit: int) -> tuple[int, list[FinishedEvent]]:
    found = db.execute(NEXT_DONE, (limit,)).fetchall()
    return len(found), finished_events(db, found)
