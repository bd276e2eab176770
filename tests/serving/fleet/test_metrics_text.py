"""The text of a scrape: what prometheus_client makes, in steps between which other work goes on."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import generate_latest

from serving.feed.follower import FeedFollower
from serving.fleet.engine_counters import CounterReporter
from serving.fleet.metrics import registry_of, render
from serving.fleet.slot_shares import SlotAllocator
from tests.serving.fleet.test_engine_load import fleet_of, vitals

NOBODY: Any = None


async def test_a_scrape_is_the_clients_own_text_and_lets_others_work_after_each_family(
    tmp_path: Path,
) -> None:
    async with aiohttp.ClientSession() as session:
        fleet = fleet_of(tmp_path, session)
        fleet.replicas["full"].record_health(vitals(2, 0.9))
        fleet.restart_counts['dep_"quoted"\\\n'] = 3
        follower = FeedFollower(NOBODY, {})
        reporter = CounterReporter(fleet.samples, "fleet", NOBODY)
        registry = registry_of(fleet, follower, reporter, SlotAllocator(epoch=1))
        rendering = asyncio.create_task(render(registry))
        turns = 0
        while not rendering.done():
            await asyncio.sleep(0)
            turns += 1
        expected = generate_latest(registry)
        assert await rendering == expected
        assert turns > expected.count(b"# TYPE") / 2  # a counter with its time of creation is two
        assert b'dep_\\"quoted\\"\\\\\\n' in expected
