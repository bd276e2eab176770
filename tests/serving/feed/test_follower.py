"""Following a feed: order, bad records, outages."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from serving.contract.feed import RECORD_OF_KIND
from serving.contract.records import FleetSizeRecord, ProjectRecord
from serving.feed.batch import Batch
from serving.feed.follower import Follower
from serving.feed.mirror import Mirror
from serving.feed.source import FeedUnavailable, HttpSource

PROJECT = {"project_id": "proj_a", "organization_id": "org_a", "budget_ids": ()}


def page(
    version: int, *changes: tuple[str, str, Any], snapshot: bool = False, lineage: str = "one"
) -> bytes:
    listed = [
        {"version": version, "kind": kind, "id": id_, "record": record}
        for kind, id_, record in changes
    ]
    told = {"lineage": lineage, "version": version, "snapshot": snapshot, "changes": listed}
    return json.dumps(told).encode()


class Script:
    """A feed that answers from a list and remembers what it was asked."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []
        self.lineages: list[str] = []
        self.pauses: list[float] = []

    async def fetch(self, after: int, lineage: str) -> bytes:
        self.asked.append(after)
        self.lineages.append(lineage)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def follow(script: Script, version: int = 0) -> Follower:
    return Follower(
        script.fetch,
        RECORD_OF_KIND,
        version=version,
        lineage="one",
        sleep=script.sleep,
        jitter=lambda: 1.0,
    )


async def take(follower: Follower, count: int) -> list[Batch]:
    batches: AsyncIterator[Batch] = follower.batches()
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
    mirror = Mirror()
    for batch in await take(follow(script), 2):
        mirror.apply(batch)
    assert mirror.version == 2
    assert mirror.all("project", ProjectRecord) == {}
    assert mirror.all("fleet_size", FleetSizeRecord) == {"fleet": FleetSizeRecord(2)}


async def test_speaks_http_with_the_secret_and_the_version() -> None:
    seen: list[tuple[str | None, str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked = request.query
        seen.append((request.headers.get("authorization"), asked["after"], asked["lineage"]))
        return web.Response(body=page(5))

    server = web.Application()
    server.router.add_get("/feed", answer)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession() as session:
        source = HttpSource(session, f"http://{host}:{port}/feed", "s3cret")
        assert await source(4, "one") == page(5)
        with pytest.raises(FeedUnavailable, match="404"):
            await HttpSource(session, f"http://{host}:{port}/nothing", "s3cret")(0, "")
    await runner.cleanup()
    assert seen == [("Bearer s3cret", "4", "one")]


async def test_a_closed_port_is_an_unavailable_feed() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(FeedUnavailable):
            await asyncio.wait_for(HttpSource(session, "http://127.0.0.1:9/feed", "s")(0, ""), 5)
