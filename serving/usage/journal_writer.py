"""The journal's one thread: it commits together whatever came together.

The event loop only queues and awaits.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import structlog

from serving.contract.usage import LeaseCharge
from serving.sqlite_files import is_damage
from serving.turn_queue import TurnQueue
from serving.usage.journal_store import JournalStore

log = structlog.get_logger(__name__)

BATCH_MAX = 2_000
"""Rows in one commit, for which organizations take turns where there are more."""
BEHIND_SECONDS = 0.02
"""Within which an open row is handed over; one whose request ends in half of it is never made."""
PROBE_SECONDS = 1.0

PUT = "INSERT INTO batch VALUES "
VALUES = "(?, ?, ?, ?, ?)"
LINES_MAX = 4_000
"""In one statement: SQLite takes 32,766 values."""
PROBE = "UPDATE gateway SET probes = probes + 1"


class JournalUnavailable(Exception):
    """The disk took nothing: what was to be durable is not."""


class JournalRow(msgspec.Struct, frozen=True):
    """An event's row."""

    event_id: str
    organization_id: str
    state: str
    body: bytes
    charges: tuple[LeaseCharge, ...] = ()


class WriteTask(msgspec.Struct, eq=False):
    """Something for the writer thread: a row, or a job on the connection, which may be for one
    organization's request too.

    Without `done` nobody waits, and the writer tries again until the disk takes it.
    """

    row: JournalRow | None = None
    job: Callable[[sqlite3.Connection], Any] | None = None
    job_organization_id: str | None = None
    done: asyncio.Future[Any] | None = None
    result: Any = None
    is_written: bool = False
    error: Exception | None = None
    """Why this work alone failed, and would fail again."""

    def answer(self, error: Exception | None) -> None:
        """Tell the one who waits, if anybody does and has not given up."""
        if self.done is None or self.done.done():
            return
        if self.is_written:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(JournalUnavailable(str(self.error or error)))

    @property
    def organization_id(self) -> str | None:
        """The organization whose turn it takes; None: it is the gateway's own, and takes none."""
        return self.job_organization_id if self.row is None else self.row.organization_id

    @property
    def may_wait(self) -> bool:
        """Whether nobody waits for it, and it is no event's row."""
        return self.done is None and self.row is None

    @property
    def is_to_be_tried_again(self) -> bool:
        """Whether nobody waits for it, and only the disk was at fault."""
        return self.done is None and self.error is None and not self.is_written


class JournalWriter:
    """Owns the connection. `on_written` is called on the event loop with the rows committed, and
    `on_replaced` in the thread, once a damaged file was replaced by a new one."""

    def __init__(
        self,
        file: JournalStore,
        on_written: Callable[[list[JournalRow]], None],
        on_replaced: Callable[[sqlite3.Connection], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.healthy = True
        self._file = file
        self._on_written = on_written
        self._on_replaced = on_replaced
        self._batches: queue.SimpleQueue[list[WriteTask] | None] = queue.SimpleQueue()
        self._waiting: list[WriteTask] = []
        """Work that came since the last batch was handed over;"""
        self._backlog: TurnQueue[WriteTask] = TurnQueue(attrgetter("organization_id"))
        """and work that comes before it: a batch had no room for it, or the disk took none."""
        self._opened: dict[str, Callable[[], JournalRow]] = {}
        self._opened_before: dict[str, Callable[[], JournalRow]] = {}
        """Before the last look, and not ended since."""
        self._look: asyncio.TimerHandle | None = None
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._loop = loop
        self._thread = threading.Thread(target=self._write_on, name="journal", daemon=True)
        self._thread.start()

    async def flush(self) -> None:
        """Write all that waits. Raises JournalUnavailable."""
        await self.write(WriteTask(job=lambda db: None))
        while self._backlog.count:
            await self.write(WriteTask(job=lambda db: None))

    async def close(self) -> None:
        """End the thread and close the file."""
        if self._look is not None:
            self._look.cancel()
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)

    def write(self, work: WriteTask) -> asyncio.Future[Any]:
        """Return what is done when the work is durable, with what its job returned.

        Awaiting it raises JournalUnavailable.
        """
        done = work.done = self._loop.create_future()
        self.add(work)
        return done

    def open(self, event_id: str, make: Callable[[], JournalRow]) -> None:
        """Make and write an event's open row, unless `forget` comes soon."""
        self._opened[event_id] = make
        if self._look is None:
            self._look = self._loop.call_later(BEHIND_SECONDS / 2, self._look_behind)

    def forget(self, event_id: str) -> None:
        """An event ends: its open row, where it was not handed over, is not needed. It may be asked
        for twice, where a second replica was tried at once."""
        self._opened.pop(event_id, None)
        self._opened_before.pop(event_id, None)

    def hand_over_opened(self) -> None:
        """Queue every open row there is."""
        opened = (*self._opened_before.values(), *self._opened.values())
        self._opened_before, self._opened = {}, {}
        self._add_opened(opened)

    def _look_behind(self) -> None:
        """Queue the open rows of before the last look; those since then wait for the next."""
        grown, self._opened_before, self._opened = self._opened_before, self._opened, {}
        again = bool(self._opened_before)
        self._look = self._loop.call_later(BEHIND_SECONDS / 2, self._look_behind) if again else None
        self._add_opened(grown.values())

    def _add_opened(self, makes: Iterable[Callable[[], JournalRow]]) -> None:
        """Queue open rows; one that can't be made keeps no other from it."""
        for make in makes:
            try:
                self.add(WriteTask(make()))
            except Exception:
                log.exception("open_row_not_made")

    def add(self, work: WriteTask) -> None:
        """Queue work for the next batch: at once, or soon where it may wait for company."""
        self._waiting.append(work)
        if not self._is_writing:
            self._hand_over_in(BEHIND_SECONDS if work.may_wait else 0.0)

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
        """Give the writer its next batch; what comes meanwhile makes up the one after.

        Work of the gateway itself is in it, as a lease is noted before anything is charged to it.
        """
        self._timer, self._is_writing = None, True
        batch, self._waiting = self._waiting, []
        if self._backlog.count or len(batch) > BATCH_MAX:
            self._backlog.put(batch)
            batch = self._backlog.take(BATCH_MAX)
        self._batches.put(batch)

    def _write_on(self) -> None:
        while (batch := self._batches.get()) is not None:
            error: Exception | None
            try:
                error = self._write(batch)
            except Exception as defect:
                # Without this thread nothing is durable any more: it goes on, and says so.
                error = defect
            self._loop.call_soon_threadsafe(self._settle, batch, error)
        self._file.close()

    def _write(self, batch: list[WriteTask]) -> Exception | None:
        """Commit a batch, into a new file if this one is damaged; return why the disk took none."""
        error = self._file.trouble or self._try(batch)
        if error is None or not is_damage(error):
            return error
        try:
            self._file.replace(error)
            self._on_replaced(self._file.connection)
        except Exception as trouble:
            log.exception("journal_not_replaced")
            return trouble
        return self._try(batch)

    def _try(self, batch: list[WriteTask]) -> sqlite3.Error | None:
        """Commit a batch; return why the disk took none of it.

        Whatever else goes wrong is the fault of one work: each is then written by itself, and
        the one at fault keeps its error. This thread must not end by it.
        """
        try:
            self._commit(batch)
        except sqlite3.Error as error:
            self._roll_back()
            return error
        except Exception as error:
            self._roll_back()
            if len(batch) == 1:
                log.exception("journal_work_failed")
                batch[0].error = error
                return None
            failures = (self._try([work]) for work in batch)
            return next((failure for failure in failures if failure is not None), None)
        for work in batch:
            work.is_written = True
        return None

    def _commit(self, batch: list[WriteTask]) -> None:
        db, jobs = self._file.connection, [work for work in batch if work.job is not None]
        rows = {work.row.event_id: work.row for work in batch if work.row is not None}
        events, charges = _events(rows.values()), _charges(rows.values())
        if self.healthy and not jobs and len(events) + len(charges) <= LINES_MAX:
            _put(db, events + charges)
            return
        db.execute("BEGIN IMMEDIATE")
        if not self.healthy:
            db.execute(PROBE)
        _put(db, events)
        for work in jobs:
            work.result = work.job(db) if work.job is not None else None
        _put(db, charges)  # a lease may be noted by one of the jobs
        db.execute("COMMIT")

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._file.connection.in_transaction:
                self._file.connection.execute("ROLLBACK")

    def _settle(self, batch: list[WriteTask], error: Exception | None) -> None:
        """On the event loop: tell those who wait, and try the rest again after an error."""
        if error is not None and self.healthy:
            log.error("journal_unavailable", error=str(error))
        self.healthy, self._is_writing = error is None, False
        if written := [work.row for work in batch if work.is_written and work.row is not None]:
            self._on_written(written)
        if error is not None:
            self._backlog.put_back([work for work in batch if work.is_to_be_tried_again])
        for work in batch:
            work.answer(error)
        if self._waiting or self._backlog.count:
            is_urgent = any(work.done for work in chain(self._backlog, self._waiting))
            patience = BEHIND_SECONDS if error is None else PROBE_SECONDS
            self._hand_over_in(0.0 if is_urgent else patience)


Line = tuple[str | None, str | None, bytes | None, str | None, int | None]


def _events(rows: Collection[JournalRow]) -> list[Line]:
    """Return a line for each row."""
    return [(row.event_id, row.state, row.body, None, None) for row in rows]


def _charges(rows: Collection[JournalRow]) -> list[Line]:
    """Return a line for each lease, with what the rows take of it in all."""
    charges: dict[str, int] = {}
    for charge in chain.from_iterable(row.charges for row in rows):
        charges[charge.lease_id] = charges.get(charge.lease_id, 0) + charge.charged_nanos
    return [(None, None, None, lease_id, nanos) for lease_id, nanos in charges.items()]


def _put(db: sqlite3.Connection, lines: list[Line]) -> None:
    """Put lines, all with one statement where they are not too many; outside a transaction it is
    one, durable when this returns.

    SQLite lets go of the interpreter lock for every statement and then waits for it in line with
    a busy event loop: with a statement for each part of it a commit took 45 ms beside a loop that
    was never idle, of which 5 were work.
    """
    for start in range(0, len(lines), LINES_MAX):
        some = lines[start : start + LINES_MAX]
        db.execute(PUT + ", ".join([VALUES] * len(some)), list(chain.from_iterable(some)))
