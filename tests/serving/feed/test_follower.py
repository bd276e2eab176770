"""Following a feed: order, bad records, outages."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from serving.contract.feed import RECORD_OF_KIND
from serving.contract.records import GatewayCountRecord, ProjectRecord
from serving.feed.changes import PART_CHANGES, ChangeBatch
from serving.feed.follower import (
    PAGE_CHANGES,
    FeedFollower,
    FeedPosition,
    FeedSource,
    FeedUnavailable,
    SnapshotExpired,
)
from serving.feed.mirror import FeedMirror, RecordTable

PROJECT = {"project_id": "proj_a", "organization_id": "org_a", "budget_ids": ()}


def page(
    version: int,
    *changes: tuple[str, str, Any],
    snapshot: bool = False,
    lineage: str = "one",
    cursor: str = "",
) -> bytes:
    listed = [
        {"version": version, "kind": kind, "id": id_, "record": record}
        for kind, id_, record in changes
    ]
    told = {"lineage": lineage, "version": version, "snapshot": snapshot, "changes": listed}
    return json.dumps(told | {"cursor": cursor}).encode()


class Script:
    """A feed that answers from a list and remembers what it was asked."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []
        self.lineages: list[str] = []
        self.cursors: list[str] = []
        self.pauses: list[float] = []

    async def fetch(self, place: FeedPosition) -> bytes:
        self.asked.append(place.version)
        self.lineages.append(place.lineage)
        self.cursors.append(place.cursor)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def follow(script: Script, version: int = 0) -> FeedFollower:
    return FeedFollower(
        script.fetch,
        RECORD_OF_KIND,
        position=FeedPosition(version, "one"),
        sleep=script.sleep,
        jitter=lambda: 1.0,
    )


async def take(follower: FeedFollower, count: int) -> list[ChangeBatch]:
    batches: AsyncIterator[ChangeBatch] = follower.batches()
    return [await anext(batches) for _ in range(count)]


async def test_asks_for_what_came_after_the_last_version() -> None:
    script = Script(
        page(7, ("project", "proj_a", PROJECT), snapshot=True), page(9, ("project", "proj_a", None))
    )
    first, second = await take(follow(script), 2)
    assert script.asked == [0, 7]
    assert first.updates[0].record == ProjectRecord(**PROJECT)
    assert second.updates[0].record is None


async def test_a_bad_record_is_kept_out_counted_and_spoils_no_neighbour() -> None:
    bad = {"live_gateway_count": -1}
    script = Script(page(1, ("fleet_size", "fleet", bad), ("project", "proj_a", PROJECT)))
    follower = follow(script)
    [batch] = await take(follower, 1)
    assert [update.id for update in batch.updates] == ["proj_a"]
    assert batch.rejected[0].id == "fleet"
    assert follower.counts.rejected == {"fleet_size": 1}


async def test_a_record_newer_than_the_reader_is_rejected() -> None:
    script = Script(page(1, ("project", "proj_a", PROJECT | {"schema": 99})))
    [batch] = await take(follow(script), 1)
    assert "schema is 99" in batch.rejected[0].reason


async def test_unknown_kinds_are_ignored_and_counted() -> None:
    script = Script(page(1, ("weather", "today", {"rain": True})))
    follower = follow(script)
    [batch] = await take(follower, 1)
    assert batch.updates == ()
    assert follower.counts.unknown == {"weather": 1}


async def test_backs_off_longer_with_each_failure_and_starts_again_after_success() -> None:
    down = [FeedUnavailable("down") for _ in range(8)]
    script = Script(*down, page(1, ("project", "proj_a", None)), FeedUnavailable("down"), page(2))
    follower = follow(script)
    await take(follower, 2)
    assert script.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.1])
    assert follower.counts.failures == 9


async def test_an_answer_that_is_no_page_counts_as_failure() -> None:
    script = Script(b"<html>", b'{"version": -1}', page(1))
    follower = follow(script)
    await take(follower, 1)
    assert follower.counts.failures == 2


async def test_does_not_spin_when_a_feed_answers_without_waiting() -> None:
    script = Script(page(4), page(4), page(5))
    await take(follow(script, version=4), 1)
    assert script.pauses == [0.5, 0.5]


async def test_takes_everything_again_when_the_publisher_went_back_in_time() -> None:
    script = Script(page(3), page(3, snapshot=True))
    [batch] = await take(follow(script, version=9), 1)
    assert script.asked == [9, 0]
    assert batch.snapshot


async def test_a_snapshot_of_another_lineage_is_followed_on_from() -> None:
    script = Script(page(4, snapshot=True, lineage="two"), page(5, lineage="two"))
    first, second = await take(follow(script, version=9), 2)
    assert (first.lineage, second.lineage) == ("two", "two")
    assert (script.asked, script.lineages) == ([9, 4], ["one", "two"])


async def test_changes_of_another_lineage_are_not_taken_but_all_asked_for_anew() -> None:
    """A publisher that does not look at the lineage it is asked of."""
    change = ("project", "proj_a", PROJECT)
    script = Script(page(12, change, lineage="two"), page(12, snapshot=True, lineage="two"))
    [batch] = await take(follow(script, version=9), 1)
    assert (script.asked, script.lineages) == ([9, 0], ["one", "two"])
    assert batch.snapshot


async def test_a_snapshot_replaces_everything_but_the_last_good_of_a_rejected_id() -> None:
    size = {"live_gateway_count": 2}
    script = Script(
        page(1, ("fleet_size", "fleet", size), ("project", "proj_a", PROJECT), snapshot=True),
        page(2, ("fleet_size", "fleet", {"live_gateway_count": "two"}), snapshot=True),
    )
    projects, sizes = RecordTable[ProjectRecord](), RecordTable[GatewayCountRecord]()
    mirror = FeedMirror({"project": projects, "fleet_size": sizes})
    for batch in await take(follow(script), 2):
        mirror.apply(batch)
    assert mirror.version == 2
    assert list(projects.all()) == []
    assert sizes.get("fleet") == GatewayCountRecord(2)


def projects(*numbers: int) -> list[tuple[str, str, Any]]:
    return [("project", f"proj_{n}", PROJECT | {"project_id": f"proj_{n}"}) for n in numbers]


async def test_a_snapshot_is_read_page_by_page_and_its_version_reached_with_the_last() -> None:
    script = Script(
        page(7, *projects(1), snapshot=True, lineage="two", cursor="a"),
        FeedUnavailable("down"),
        page(7, *projects(2), snapshot=True, lineage="two", cursor="b"),
        page(7, snapshot=True, lineage="two"),
        page(8, *projects(3), lineage="two"),
    )
    known = RecordTable[ProjectRecord]()
    mirror, versions = FeedMirror({"project": known}), []
    known.put("proj_gone", ProjectRecord("proj_gone", "org_a", ()))
    for batch in await take(follow(script), 4):
        mirror.apply(batch)
        versions.append((mirror.version, len(known.all())))
    assert script.cursors == ["", "a", "a", "b", ""]
    assert (script.asked[-1], script.lineages[-1]) == (7, "two")
    assert versions == [(0, 2), (0, 3), (7, 2), (8, 3)]


@pytest.mark.parametrize(
    "answer",
    [
        SnapshotExpired("compacted"),
        page(9, *projects(9), snapshot=True, cursor="x"),
        page(7, *projects(9), snapshot=True, cursor="x", lineage="two"),
        page(7, *projects(9), cursor="x"),
    ],
    ids=["gone", "another version", "another lineage", "no snapshot"],
)
async def test_a_snapshot_that_does_not_go_on_is_begun_again(answer: bytes | Exception) -> None:
    script = Script(
        page(7, *projects(1), snapshot=True, cursor="a"),
        answer,
        page(8, *projects(2), snapshot=True),
    )
    known = RecordTable[ProjectRecord]()
    mirror = FeedMirror({"project": known})
    for batch in await take(follow(script), 2):
        mirror.apply(batch)
    assert script.cursors == ["", "a", ""]
    assert [each.project_id for each in known.all()] == ["proj_2"]
    assert mirror.version == 8


async def test_the_next_page_is_asked_for_while_one_is_taken_in() -> None:
    script = Script(
        page(7, *projects(*range(2 * PART_CHANGES)), snapshot=True, cursor="a"),
        page(7, snapshot=True, cursor="b"),
        FeedUnavailable("down"),
    )
    batches = follow(script).batches()
    for cursors in (["", "a"], ["", "a"], ["", "a", "b"]):
        await anext(batches)
        assert script.cursors == cursors
    await asyncio.sleep(0)
    assert script.cursors == ["", "a", "b"]
    await batches.aclose()


async def test_a_long_page_comes_in_parts_and_its_version_with_the_last_of_them() -> None:
    """Whoever takes them in lets the loop go between two."""
    script = Script(page(3, *projects(*range(2 * PART_CHANGES + 1))))
    batches = await take(follow(script), 3)
    assert [len(batch.updates) for batch in batches] == [PART_CHANGES, PART_CHANGES, 1]
    assert [(batch.is_first, batch.is_last) for batch in batches] == [
        (True, False), (False, False), (False, True),
    ]  # fmt: skip


async def test_what_is_answered_while_a_reader_starts_over_is_left_aside() -> None:
    script = Script(page(4, *projects(1)), page(5, *projects(2), snapshot=True))

    async def fetch(place: FeedPosition) -> bytes:
        if not script.asked:
            follower.start_over()
        return await script.fetch(place)

    follower = FeedFollower(
        fetch, RECORD_OF_KIND, position=FeedPosition(3, "one"), sleep=script.sleep
    )
    [batch] = await take(follower, 1)
    assert script.asked == [3, 0]
    assert [update.id for update in batch.updates] == ["proj_2"]


async def test_speaks_http_with_the_secret_and_the_version() -> None:
    seen: list[tuple[str | None, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.headers.get("authorization"), dict(request.query)))
        return web.Response(status=410 if "cursor" in request.query else 200, body=page(5))

    server = web.Application()
    server.router.add_get("/feed", answer)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession() as session:
        source = FeedSource(session, f"http://{host}:{port}/feed", "s3cret")
        assert await source(FeedPosition(4, "one")) == page(5)
        with pytest.raises(FeedUnavailable, match="404"):
            await FeedSource(session, f"http://{host}:{port}/nothing", "s3cret")(
                FeedPosition(0, "")
            )
        some = FeedSource(session, f"http://{host}:{port}/feed", "s3cret", kinds=("model", "price"))
        with pytest.raises(SnapshotExpired):
            await some(FeedPosition(4, "one", "here"))
    await runner.cleanup()
    asked = {"after": "4", "lineage": "one", "limit": str(PAGE_CHANGES)}
    more = {"kinds": "model,price", "cursor": "here"}
    assert seen == [("Bearer s3cret", asked), ("Bearer s3cret", asked | more)]


async def test_a_closed_port_is_an_unavailable_feed() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(FeedUnavailable):
            source = FeedSource(session, "http://127.0.0.1:9/feed", "s")
            await asyncio.wait_for(source(FeedPosition(0, "")), 60)
