"""The replica feed answers with what is new, or with everything."""

import asyncio
from datetime import UTC, datetime

from serving.contract.codec import decode
from serving.contract.replica import ReplicaRecord, State
from serving.fleet.replica_feed import CHANGES_KEPT, ReplicaFeed


def record(replica_id: str = "r1", state: State = "ready", tokens: int = 0) -> ReplicaRecord:
    return ReplicaRecord(
        replica_id=replica_id,
        deployment_id="dep_1",
        url="http://127.0.0.1:1",
        state=state,
        slots=1,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        engine="simulated",
        probe_output_tokens=tokens,
    )


async def test_a_stranger_gets_a_snapshot() -> None:
    feed = ReplicaFeed(version=100, lineage="run1")
    feed.publish(record())
    for after in (0, 99, 5_000):
        page = await feed.page(after, "run1", wait_seconds=1)
        assert (page.snapshot, page.version) == (True, 101)
        assert decode(page.changes[0].record, ReplicaRecord) == record()


async def test_a_follower_gets_only_what_is_new_deletions_too() -> None:
    feed = ReplicaFeed(version=100, lineage="run1")
    feed.publish(record())
    feed.publish(record("r2"))
    feed.remove("r1")
    page = await feed.page(101, "run1", wait_seconds=1)
    assert not page.snapshot
    assert [(c.version, c.id, c.is_deletion) for c in page.changes] == [
        (102, "r2", False),
        (103, "r1", True),
    ]


async def test_news_wakes_a_waiting_poll_at_once() -> None:
    feed = ReplicaFeed(version=100, lineage="run1")
    waiting = asyncio.create_task(feed.page(100, "run1", wait_seconds=60))
    await asyncio.sleep(0)
    feed.publish(record())
    page = await asyncio.wait_for(waiting, 60)
    assert page.version == 101


async def test_no_news_is_an_empty_page_after_the_wait() -> None:
    feed = ReplicaFeed(version=100, lineage="run1")
    page = await feed.page(100, "run1", wait_seconds=0.01)
    assert (page.version, page.snapshot, page.changes) == (100, False, ())


async def test_the_same_record_twice_is_no_news_and_figures_come_with_the_snapshot() -> None:
    feed = ReplicaFeed(version=100, lineage="run1")
    feed.publish(record())
    feed.publish(record())
    feed.refresh(record(tokens=7))
    assert feed.version == 101
    page = await feed.page(0, "run1", wait_seconds=1)
    assert decode(page.changes[0].record, ReplicaRecord).probe_output_tokens == 7


async def test_who_is_too_far_behind_gets_a_snapshot() -> None:
    feed = ReplicaFeed(version=100, lineage="run1")
    for number in range(CHANGES_KEPT + 5):
        feed.publish(record(tokens=number))
    assert (await feed.page(104, "run1", wait_seconds=1)).snapshot
    page = await feed.page(105, "run1", wait_seconds=1)
    assert not page.snapshot
    assert len(page.changes) == CHANGES_KEPT


async def test_a_reader_of_another_run_gets_a_snapshot_whatever_its_version() -> None:
    """The clock that versions start at was set back: an earlier run gave this version too."""
    feed = ReplicaFeed(version=100, lineage="run2")
    feed.publish(record())
    for known in ("run1", ""):
        page = await feed.page(101, known, wait_seconds=10)
        assert (page.snapshot, page.lineage) == (True, "run2")
    of_before_lineages = await feed.page(101, None, wait_seconds=0.01)
    assert not of_before_lineages.snapshot
