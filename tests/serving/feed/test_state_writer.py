"""The keeper writes whatever comes, however the disk behaves, and does not hold the feed up."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from serving.contract.feed import RECORD_OF_KIND
from serving.feed import state_store
from serving.feed.changes import ChangeBatch
from serving.feed.follower import FeedPosition
from serving.feed.state_store import StateFile, StateWriter
from tests.fixtures import catalog
from tests.fixtures.state import batches, page, read
from tests.fixtures.waiting import eventually

ORGANIZATION = catalog.tenant("a").organization


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "RETRY_SECONDS", 0.01)


class Disk(StateFile):
    """A file on a disk that can be full, or lose its mind."""

    is_full = False
    error: sqlite3.Error | None = None

    def write(self, batches: Sequence[ChangeBatch]) -> bool:
        self._look()
        return super().write(batches)

    def probe(self) -> None:
        self._look()
        super().probe()

    def _look(self) -> None:
        if self.is_full:
            raise self.fail(sqlite3.OperationalError("database or disk is full"))
        if self.error is not None:
            error, self.error = self.error, None
            raise self.fail(error)

    def fail(self, error: sqlite3.Error) -> sqlite3.Error:
        self._recover(error)
        return error


class Kept:
    """A keeper that runs, what it said of itself, and its disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = Disk(path, RECORD_OF_KIND)
        self.lost_count = 0
        self.keeper = StateWriter(self.disk, self.lose)

    def lose(self) -> None:
        self.lost_count += 1

    async def tell(self, version: int, *, snapshot: bool = False, cursor: str = "") -> None:
        told = page(
            version,
            ("organization", f"org_{version}", ORGANIZATION),
            snapshot=snapshot,
            cursor=cursor,
        )
        for batch in batches(told):
            await self.keeper.enqueue(batch)

    async def saved(self, version: int) -> None:
        await eventually(lambda: self.keeper.saved_version == version)

    async def failed(self, times: int = 2) -> None:
        already = self.keeper.failures
        await eventually(lambda: self.keeper.failures >= already + times)


@asynccontextmanager
async def keeping_in(path: Path) -> AsyncIterator[Kept]:
    kept = Kept(path)
    running = asyncio.create_task(kept.keeper.run())
    try:
        yield kept
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await kept.keeper.close()


def ids(path: Path) -> set[str]:
    return {id_ for _, id_ in read(path).records}


async def test_what_the_disk_did_not_take_is_written_in_order_once_it_does(tmp_path: Path) -> None:
    async with keeping_in(tmp_path / "s") as kept:
        await kept.tell(1)
        await kept.saved(1)
        kept.disk.is_full = True
        for version in (2, 3):
            await kept.tell(version)
        await kept.failed()
        await kept.tell(4)
        kept.disk.is_full = False
        await kept.saved(4)
        assert (kept.keeper.failures, kept.lost_count) == (0, 0)
    assert ids(tmp_path / "s") == {"org_1", "org_2", "org_3", "org_4"}
    assert read(tmp_path / "s").place == FeedPosition(4, "one")


async def test_what_follows_an_error_amid_a_snapshot_is_all_of_it(tmp_path: Path) -> None:
    async with keeping_in(tmp_path / "s") as kept:
        await kept.tell(1)
        await kept.tell(9, snapshot=True, cursor="more")
        await kept.saved(1)
        await eventually(lambda: kept.keeper._written_count == 1)
        kept.disk.error = sqlite3.OperationalError("disk I/O error")
        for batch in batches(page(9, ("organization", "org_b", ORGANIZATION)), begins=False):
            await kept.keeper.enqueue(batch)
        await kept.saved(9)
    assert ids(tmp_path / "s") == {"org_9", "org_b"}


@pytest.mark.parametrize("fault", ["long outage", "long snapshot", "damage"])
async def test_where_more_is_lost_than_can_be_written_again_a_snapshot_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with keeping_in(tmp_path / "s") as kept:
        await kept.tell(1)
        await kept.saved(1)
        if fault == "damage":
            kept.disk.error = _corrupt()
            await kept.tell(2)
        elif fault == "long outage":
            kept.disk.is_full = True
            for version in range(2, 2 * state_store.UNSAVED_MAX):
                await asyncio.wait_for(kept.tell(version), 60)
            await kept.failed()
        else:
            monkeypatch.setattr(state_store, "UNSAVED_MAX", 1)
            await kept.tell(2, snapshot=True, cursor="a")
            for _ in range(2):
                for batch in batches(page(2, cursor="a"), begins=False):
                    await kept.keeper.enqueue(batch)
            await eventually(lambda: kept.keeper._is_cut)
            kept.disk.is_full = True
            for batch in batches(page(2), begins=False):
                await kept.keeper.enqueue(batch)
            await kept.failed()
        kept.disk.is_full = False
        await eventually(lambda: kept.lost_count == 1)
        await kept.tell(998)  # changes that do not follow on what the file has
        await kept.tell(999, snapshot=True)
        await kept.saved(999)
        assert (kept.keeper.failures, kept.lost_count) == (0, 1)
    assert ids(tmp_path / "s") == {"org_999"}


def _corrupt() -> sqlite3.Error:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


async def test_a_working_disk_sets_the_pace(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s")
    for version in range(state_store.QUEUED_MAX):
        await asyncio.wait_for(kept.tell(version), 60)
    waiting = asyncio.create_task(kept.tell(99))
    await asyncio.sleep(0)
    assert not waiting.done()
    running = asyncio.create_task(kept.keeper.run())
    await waiting
    await kept.saved(99)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await kept.keeper.close()
