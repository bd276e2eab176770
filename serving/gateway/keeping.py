"""Keeping a feed's state on disk, change by change, beside the event loop."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

import structlog

from serving.feed.changes import ChangeBatch
from serving.gateway.state import StateFile
from serving.sqlite_files import is_damage

log = structlog.get_logger(__name__)

T = TypeVar("T")
QUEUED_MAX = 8
"""Batches. While the disk takes them, whoever reads a snapshot goes no faster than it."""
UNSAVED_MAX = 50
"""Batches kept to be written again, until their version is durable: 7,500 changes, or five pages.
Of a longer snapshot not all is kept."""
RETRY_SECONDS = 1.0


class Keeper:
    """Writes batches one after the other into a file, for ever.

    What the disk does not take is tried again. Where that is no longer all that the file lacks, it
    stays as it is until the disk takes anything; then `on_lost` is called, and a snapshot awaited.
    """

    def __init__(self, file: StateFile, on_lost: Callable[[], None]) -> None:
        self.failures = 0
        """How often the disk would not take the state, since it last did."""
        self.saved_version = 0
        self._file = file
        self._on_lost = on_lost
        self._thread = ThreadPoolExecutor(1, "state")
        self._queue: asyncio.Queue[ChangeBatch] = asyncio.Queue(QUEUED_MAX)
        self._unsaved: deque[ChangeBatch] = deque()
        self._written_count = 0
        """How many of these are in the transaction under way."""
        self._is_cut = False
        """Whether some of that transaction are not among them any more."""
        self._is_failing = self._is_behind = self._awaits_snapshot = False

    async def keep(self, batch: ChangeBatch) -> None:
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
                self._note(error)
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

    def _note(self, error: sqlite3.Error | OSError) -> None:
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
