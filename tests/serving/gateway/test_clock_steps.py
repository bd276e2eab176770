"""The clock of a gateway's host jumps by an hour, there and back: nobody is refused, no limit is
opened, and all that was served is booked when it was served."""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import msgspec
import pytest
from libfaketime import get_reload_information

from serving.contract.records import RateLimitSettings
from tests.fixtures import catalog
from tests.fixtures.environment import free_port
from tests.fixtures.gateway import MESSAGES
from tests.fixtures.gateway_processes import gateway, until_ready, world
from tests.fixtures.redis_server import RedisServer, running_redis
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.full]

CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}
STEPS = {"+0": 0.0, "+1h": 3_600.0, "-0": 0.0, "-1h": -3_600.0, "+0h": 0.0}
"""What libfaketime is told, and the seconds that it means."""
ANSWERS = 20
"""How many each organization gets at a step."""
STEP_SECONDS_MAX = 60.0
LATE_SECONDS = 60.0
"""How far from the truth an event may be: a busy machine is slow to ask."""
PER_MINUTE = 60
"""Requests of the organization that is limited."""


class Watch:
    """The clock of one process, set by hand while it runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set("+0")

    def set(self, ahead: str) -> None:
        """Let it be so much ahead of the truth from now on."""
        self._file.write_text(ahead)

    @property
    def environment(self) -> dict[str, str]:
        """What a process is told that goes by it."""
        _, preloaded = get_reload_information()
        return preloaded | {
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def server(tmp_path: Path):
    with running_redis(tmp_path) as server:
        yield server


async def ask(url: str, secret: str, ending: asyncio.Event, seen: Counter[int]) -> None:
    """Ask one time after the other until it ends; count how often each status was answered."""
    headers = {"authorization": f"Bearer {secret}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        while not ending.is_set():
            async with session.post(url, json=ASK) as reply:
                await reply.read()
            seen[reply.status] += 1


async def skew(operator_port: int) -> float:
    """Return by how much a gateway says that its host is ahead."""
    url = f"http://127.0.0.1:{operator_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        lines = (await reply.text()).splitlines()
    [line] = [line for line in lines if line.startswith("penstock_gateway_clock_skew")]
    return float(line.split()[1])


async def until_told(operator_port: int, ahead: float) -> None:
    """Wait until a gateway says that its host is so much ahead."""
    deadline = time.monotonic() + STEP_SECONDS_MAX
    while abs(told := await skew(operator_port) - ahead) >= LATE_SECONDS:
        assert time.monotonic() < deadline, f"the gateway is {told} s off what it should say"
        await asyncio.sleep(0.1)


async def answered_more(seen: Sequence[Counter[int]]) -> None:
    """Wait until each was answered so many times more."""
    wanted = [each.total() + ANSWERS for each in seen]
    await eventually(
        lambda: all(each.total() >= count for each, count in zip(seen, wanted, strict=True)),
        seconds=STEP_SECONDS_MAX,
    )


async def test_an_hour_ahead_and_an_hour_behind(tmp_path: Path, server: RedisServer) -> None:
    watch = Watch(tmp_path / "clock")
    limited = catalog.tenant("limited")
    async with world() as (control, listening, secret), AsyncExitStack() as running:
        limits = RateLimitSettings(requests_per_minute=PER_MINUTE)
        organization = msgspec.structs.replace(limited.organization, own_limits=limits)
        catalog.publish(control, dataclasses.replace(limited, organization=organization))
        port = free_port()
        told = watch.environment | {"REDIS_URL": server.url}
        await running.enter_async_context(
            gateway(tmp_path / "gateway", control, listening, port, told)
        )
        await until_ready(port)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}{CHAT}"
        began, monotonic = datetime.now(UTC), time.monotonic()
        free, bounded, ending = Counter[int](), Counter[int](), asyncio.Event()
        async with asyncio.TaskGroup() as asking:
            asking.create_task(ask(url, secret, ending, free))
            asking.create_task(ask(url, limited.secret, ending, bounded))
            for step, ahead in STEPS.items():
                watch.set(step)
                await until_told(port, ahead)
                await answered_more((free, bounded))
            ending.set()
        minutes = (time.monotonic() - monotonic) / 60
        assert set(free) == {200}
        assert set(bounded) == {200, 429}
        assert bounded[200] <= PER_MINUTE * (1 + minutes)
        served = free[200] + bounded[200]
        events = control.billing.events
        await eventually(lambda: len(events) == served, seconds=60)
    late = timedelta(seconds=LATE_SECONDS)
    for event in events.values():
        assert began - late < event.received_at < datetime.now(UTC) + late
