"""A gateway killed at random moments: whoever saw the end is billed exactly once."""

import asyncio
import os
import random
import signal
from pathlib import Path

import aiohttp
import pytest

from serving.engine.simulated.server import Server
from serving.engine.simulated.settings import Settings
from tests.fixtures import catalog
from tests.fixtures.environment import free_port
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway_process import gateway_process
from tests.fixtures.load import Door, crowd
from tests.fixtures.waiting import eventually

KILLS = 3
FINISHED_EACH = 25
"""Requests in each life at least, before it is ended at a random moment."""


@pytest.mark.e2e
@pytest.mark.full
async def test_whoever_saw_the_end_is_billed_exactly_once_through_kills(tmp_path: Path) -> None:
    control, tenant, port = FakeControl(), catalog.tenant(), free_port()
    engine = Server(Settings(models=("var_demo",), port=0, context_tokens=512, itl_seconds=0.002))
    door = Door(f"http://127.0.0.1:{port}/v1", tenant.secret, "demo")
    ending = asyncio.Event()
    async with control.serving():
        await engine.start()
        catalog.publish(control, tenant)
        control.fleet.publish(
            "replica", "rep_1", catalog.replica(f"http://127.0.0.1:{engine.port}")
        )
        load = asyncio.create_task(crowd(door, clients=8, until=lambda n: ending.is_set(), seed=7))
        for kill in range(KILLS + 1):
            async with gateway_process(tmp_path, control.url, port=port) as gateway:
                enough = engine.engine.finished.total() + FINISHED_EACH
                await eventually(lambda count=enough: engine.engine.finished.total() >= count)
                await asyncio.sleep(1 + random.Random(kill).random())
                if kill < KILLS:
                    os.kill(gateway.pid, signal.SIGKILL)
                else:
                    ending.set()
                    seen = await load
        await engine.stop()
    finished = [one for one in seen if one.finished and one.status == 200]
    booked = control.billing.events
    assert len(finished) > 50
    assert {one.request_id for one in finished} <= set(booked)
    assert all(booked[str(one.request_id)].outcome == "completed" for one in finished)
    charged = sum(c.charged_nanos for event in booked.values() for c in event.charges)
    leases = control.billing.books.leases.values()
    assert sum(lease.settled_nanos for lease in leases) == charged
    assert {event.outcome for event in booked.values()} >= {"completed", "client_cancelled"}


@pytest.mark.e2e
@pytest.mark.full
async def test_a_gateway_killed_while_control_is_away_serves_from_the_leases_on_its_disk(
    tmp_path: Path,
) -> None:
    control, fleet, tenant = FakeControl(), FakeControl(), catalog.tenant()
    engine = Server(Settings(models=("var_demo",), port=0, context_tokens=512))
    headers = {"authorization": f"Bearer {tenant.secret}"}
    turn = {"role": "user", "content": "hi"}
    body = {"model": "demo", "messages": [turn], "max_tokens": 4}

    async def ask(url: str) -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as reply,
        ):
            return reply.status

    async with fleet.serving():
        await engine.start()
        record = catalog.replica(f"http://127.0.0.1:{engine.port}")
        fleet.fleet.publish("replica", "rep_1", record)
        async with control.serving():
            catalog.publish(control, tenant)
            async with gateway_process(tmp_path, control.url, fleet_url=fleet.url) as gateway:
                assert await ask(gateway.url) == 200
                await eventually(lambda: len(control.billing.events) == 1)
                granted = set(control.billing.books.leases)
                control.billing.is_down = True
                assert await ask(gateway.url) == 200
                os.kill(gateway.pid, signal.SIGKILL)
        for _ in range(2):
            async with gateway_process(tmp_path, control.url, fleet_url=fleet.url) as gateway:
                assert [await ask(gateway.url) for _ in range(5)] == [200] * 5
                os.kill(gateway.pid, signal.SIGKILL)
        control.billing.is_down = False
        async with (
            control.serving(),
            gateway_process(tmp_path, control.url, fleet_url=fleet.url),
        ):
            await eventually(lambda: len(control.billing.events) == 12)
        await engine.stop()
    books = control.billing.books
    charged = {charge.lease_id for e in books.events.values() for charge in e.charges}
    assert charged <= granted
    assert all(one.settled_nanos <= one.keep_nanos for one in books.leases.values())
