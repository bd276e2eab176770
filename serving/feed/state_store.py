"""The last good state of a feed on disk: a row for each record, and what version they make up,
written change by change beside the event loop.

It says what records its writer knew. One of another version knew no such kinds or fields as came
since, so that following on from its version would never bring them: it only bridges the time
until everything was read anew.
"""

import asyncio
import contextlib
import hashlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.feed import FeedChange
from serving.feed.changes import PART_CHANGES, ChangeBatch, Kinds, validate
from serving.feed.follower import BEGINNING, FeedPosition
from serving.sqlite_files import is_damage, set_aside

log = structlog.get_logger(__name__)


BUSY_SECONDS = 5.0
WAL_BYTES_KEPT = 64 * 2**20
"""The log of a large snapshot is cut to this once the snapshot is in the file."""
TABLES = """
CREATE TABLE IF NOT EXISTS records (
    kind TEXT, id TEXT, record BLOB NOT NULL, turn INTEGER NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (
    one INTEGER PRIMARY KEY, schema INTEGER NOT NULL, records TEXT NOT NULL,
    version INTEGER NOT NULL, lineage TEXT NOT NULL, turn INTEGER NOT NULL
);
"""
STATE = "SELECT schema, records, version, lineage, turn FROM state"
PUT_STATE = "INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?)"
RECORDS = "SELECT kind, id, record FROM records"
PUT = "INSERT OR REPLACE INTO records VALUES "
DELETE = "DELETE FROM records WHERE (kind, id) IN (VALUES {})"
KEEP = "UPDATE records SET turn = ? WHERE (kind, id) IN (VALUES {})"
DELETE_STALE = "DELETE FROM records WHERE turn <> ?"

Key = tuple[str, str]
"""Kind and id."""
Row = TypeVar("Row")
DELETED = b"null"


class StateHeader(msgspec.Struct, frozen=True):
    """The one row of `state`. Records of the last snapshot, or changed since, are of its
    `generation`."""

    schema: int
    records: str
    version: int
    lineage: str
    generation: int


class StateFile:
    """One connection, used by one thread at a time, opened when it is first needed.

    A file holds all of a version or nothing of it: batches are written in one transaction until
    the last of their version. After an error nothing is left of the transaction.
    """

    def __init__(self, path: Path, kinds: Kinds) -> None:
        self.position = BEGINNING
        """From where the feed may be followed on, once everything was read."""
        self.name = path.name
        self._path = path
        self._kinds = kinds
        self._db: sqlite3.Connection | None = None
        self._generation = self._committed_generation = 0

    def read(self) -> Iterator[ChangeBatch]:
        """Yield what was written last. Without a last batch the file is damaged, set aside, and
        nothing of it to be believed."""
        try:
            db = self._open()
            if (written := _written(db)) is not None:
                yield from self._read(db, written)
        except (sqlite3.Error, OSError) as error:
            log.error("saved_state_unreadable", file=self.name, error=str(error))
            self._recover(error)

    def write(self, batches: Sequence[ChangeBatch]) -> bool:
        """Write batches that follow each other, none but the last of them the last of its version;
        tell whether that is now durable. Raises sqlite3.Error and OSError."""
        try:
            db = self._open()
            for batch in batches:
                self._begin(db, batch)
                self._put(db, batch)
            if batches[-1].is_last:
                self._commit(db, batches[-1])
            return batches[-1].is_last
        except (sqlite3.Error, OSError) as error:
            self._recover(error)
            raise

    def probe(self) -> None:
        """See whether the disk takes anything. Raises sqlite3.Error and OSError."""
        try:
            self._open().execute(f"PRAGMA user_version = {time.time_ns() % 2**31}")
        except (sqlite3.Error, OSError) as error:
            self._recover(error)
            raise

    def close(self) -> None:
        """Let others use the file."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
            self._db.executescript(TABLES)
            written = _written(self._db)
            self._generation = self._committed_generation = (
                0 if written is None else written.generation
            )
        return self._db

    def _read(self, db: sqlite3.Connection, written: StateHeader) -> Iterator[ChangeBatch]:
        is_rejected, is_first = False, True
        rows = db.execute(RECORDS)
        while found := rows.fetchmany(PART_CHANGES):
            changes = [FeedChange(0, kind, id_, msgspec.Raw(record)) for kind, id_, record in found]
            batch = validate(
                changes, self._kinds, ChangeBatch(0, True, is_last=False, is_first=is_first)
            )
            yield batch
            is_rejected, is_first = is_rejected or bool(batch.rejected), False
        is_current = written.records == fingerprint(tuple(self._kinds.items()))
        if is_rejected or not is_current:
            log.error("saved_state_of_another_version", file=self.name, schema=written.schema)
            self.position = FeedPosition(0, written.lineage)
        else:
            self.position = FeedPosition(written.version, written.lineage)
        yield ChangeBatch(
            *(written.version, True),
            is_partial=is_rejected,
            lineage=written.lineage,
            is_first=is_first,
        )

    def _begin(self, db: sqlite3.Connection, batch: ChangeBatch) -> None:
        if batch.is_first and db.in_transaction:
            db.execute("ROLLBACK")  # of a snapshot that was begun anew
        if not db.in_transaction:
            db.execute("BEGIN IMMEDIATE")
            self._generation = self._committed_generation + batch.snapshot

    def _commit(self, db: sqlite3.Connection, batch: ChangeBatch) -> None:
        if batch.snapshot:
            db.execute(DELETE_STALE, [self._generation])
        known = fingerprint(tuple(self._kinds.items()))
        db.execute(PUT_STATE, [SCHEMA, known, batch.version, batch.lineage, self._generation])
        db.execute("COMMIT")
        self._committed_generation = self._generation

    def _put(self, db: sqlite3.Connection, batch: ChangeBatch) -> None:
        last = {(update.kind, update.id): bytes(update.raw) for update in batch.updates}
        gone = [key for key, record in last.items() if record == DELETED]
        put = [
            (*key, record, self._generation) for key, record in last.items() if record != DELETED
        ]
        for rows in _pages(put):
            db.execute(PUT + ", ".join(["(?, ?, ?, ?)"] * len(rows)), list(chain(*rows)))
        for keys in _pages(gone):
            db.execute(DELETE.format(_values(keys)), list(chain(*keys)))
        kept = [(bad.kind, bad.id) for bad in batch.rejected] if batch.snapshot else []
        for keys in _pages(kept):
            db.execute(KEEP.format(_values(keys)), [self._generation, *chain(*keys)])

    def _recover(self, error: Exception) -> None:
        """Go on with the state as it was last committed, or with a new file."""
        if self._db is not None and self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error) and is_damage(error):
            self.close()
            aside = set_aside(self._path)
            log.error("saved_state_damaged", file=self.name, aside=aside.name)


def _written(db: sqlite3.Connection) -> StateHeader | None:
    found = db.execute(STATE).fetchone()
    return None if found is None else StateHeader(*found)


def _pages(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """SQLite takes so many values in one statement, during which others may use the interpreter."""
    return (rows[start : start + PART_CHANGES] for start in range(0, len(rows), PART_CHANGES))


def _values(keys: Sequence[Key]) -> str:
    return ", ".join(["(?, ?)"] * len(keys))


@lru_cache
def fingerprint(kinds: tuple[tuple[str, type[msgspec.Struct]], ...]) -> str:
    """Return what tells a set of kinds and all of their fields from every other."""
    schemas, parts = msgspec.json.schema_components([of for _, of in kinds])
    said = [SCHEMA, [kind for kind, _ in kinds], list(schemas), _without_words(parts)]
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


def _without_words(schema: Any) -> Any:
    """Return a JSON schema without its descriptions, which are our docstrings."""
    if isinstance(schema, dict):
        return {key: _without_words(of) for key, of in schema.items() if key != "description"}
    return [_without_words(of) for of in schema] if isinstance(schema, list) else schema


T = TypeVar("T")
QUEUED_MAX = 8
"""Batches. While the disk takes them, whoever reads a snapshot goes no faster than it."""
UNSAVED_MAX = 50
"""Batches kept to be written again, until their version is durable: 7,500 changes, or five pages.
A longer snapshot is kept in part."""
RETRY_SECONDS = 1.0


class StateWriter:
    """Writes batches one after the other into a file, for ever.

    A write that the disk refuses is tried again. If the file lacks more than that by then, it
    stays as it is until the disk takes anything; then `on_lost` is called, and a snapshot awaited.
    """

    def __init__(self, file: StateFile, on_lost: Callable[[], None]) -> None:
        self.failures = 0
        """Writes that the disk refused since the last one that it took."""
        self.saved_version = 0
        self._file = file
        self._on_lost = on_lost
        self._thread = ThreadPoolExecutor(1, "state")
        self._queue: asyncio.Queue[ChangeBatch] = asyncio.Queue(QUEUED_MAX)
        self._unsaved: deque[ChangeBatch] = deque()
        self._written_count = 0
        """The number of these in the transaction under way."""
        self._is_cut = False
        """Whether some of that transaction are not among them any more."""
        self._is_failing = self._is_behind = self._awaits_snapshot = False

    async def enqueue(self, batch: ChangeBatch) -> None:
        """Hand over a batch that is in force; wait for the disk only while it works."""
        if not self._is_failing:
            await self._queue.put(batch)
        elif self._queue.full():
            self._is_behind = True
        else:
            self._queue.put_nowait(batch)

    async def run(self) -> None:
        """Write what is handed over, for ever."""
        while True:
            try:
                if self._is_behind:
                    await self._catch_up()
                elif batches := self._next():
                    await self._write(batches)
                else:
                    self._add(await self._queue.get())
            except (sqlite3.Error, OSError) as error:
                self._note_failure(error)
                await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Wait for what is being written, and let others use the file."""
        await asyncio.to_thread(self._thread.shutdown)
        self._file.close()

    def _add(self, batch: ChangeBatch) -> None:
        if self._awaits_snapshot and not (batch.snapshot and batch.is_first):
            return
        self._awaits_snapshot = False
        self._unsaved.append(batch)

    def _next(self) -> list[ChangeBatch]:
        """Return what waits to be written, of one version at most: to hand over batches one by one
        takes the loop as long as to take one in."""
        while not self._queue.empty():
            self._add(self._queue.get_nowait())
        batches: list[ChangeBatch] = []
        for batch in islice(self._unsaved, self._written_count, None):
            if batches and (batch.is_first or batches[-1].is_last):
                break
            batches.append(batch)
        return batches

    async def _write(self, batches: list[ChangeBatch]) -> None:
        if batches[0].is_first:
            self._drop_written()  # of a snapshot that was begun anew
        is_durable = await self._do(partial(self._file.write, batches))
        self._written_count += len(batches)
        if is_durable:
            self.saved_version, self.failures = batches[-1].version, 0
            self._drop_written()
        while len(self._unsaved) > UNSAVED_MAX and self._written_count:
            self._unsaved.popleft()
            self._written_count -= 1
            self._is_cut = True

    async def _catch_up(self) -> None:
        self._written_count = len(self._unsaved)
        self._drop_written()
        while not self._queue.empty():
            self._queue.get_nowait()
        await self._do(self._file.probe)
        self._is_behind, self._awaits_snapshot = False, True
        self._on_lost()

    async def _do(self, work: Callable[[], T]) -> T:
        done = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._is_failing = False
        return done

    def _note_failure(self, error: sqlite3.Error | OSError) -> None:
        """Nothing is left of the transaction: all of it is to be written again, if it can be."""
        self.failures += 1
        log.error("state_not_saved", file=self._file.name, error=str(error))
        self._is_failing, self._written_count = True, 0
        while not self._queue.empty():
            self._add(self._queue.get_nowait())
        is_gone = isinstance(error, sqlite3.Error) and is_damage(error)
        if self._is_cut or is_gone or len(self._unsaved) > UNSAVED_MAX:
            self._is_behind = True

    def _drop_written(self) -> None:
        for _ in range(self._written_count):
            self._unsaved.popleft()
        self._written_count, self._is_cut = 0, False
