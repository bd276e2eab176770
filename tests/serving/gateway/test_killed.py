"""A gateway killed at random moments: whoever saw the end is billed exactly once."""

import asyncio
import os
import random
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from serving.contract.lease import LeaseReply, LeaseRequest
from serving.engine.simulated.server import SimulatedServer
from serving.engine.simulated.settings import SimulatorSettings
from serving.usage.journal import JOURNAL
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
    engine = SimulatedServer(
        SimulatorSettings(models=("var_demo",), port=0, context_tokens=512, itl_seconds=0.002)
    )
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
    engine = SimulatedServer(SimulatorSettings(models=("var_demo",), port=0, context_tokens=512))
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


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.parametrize("is_received", [False, True])
async def test_a_lease_is_returned_or_adopted_never_both(tmp_path: Path, is_received: bool) -> None:
    """The gateway is killed once its disk knows that a lease goes back, before billing hears of it
    or before the gateway hears that billing has."""
    control, tenant = FakeControl(), catalog.tenant()
    billing, answer = control.billing, control.billing.lease
    engine = SimulatedServer(SimulatorSettings(models=("var_demo",), port=0, context_tokens=512))
    headers = {"authorization": f"Bearer {tenant.secret}"}
    turn = {"role": "user", "content": "hi"}
    body = {"model": "demo", "messages": [turn], "max_tokens": 4}
    returned: set[str] = set()

    async def ask(url: str) -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as reply,
        ):
            return reply.status

    def kill_at_return(pid: int, request: LeaseRequest) -> LeaseReply:
        if not request.returns or returned:
            return LeaseReply(billing.lineage) if returned else answer(request)
        returned.update(back.lease_id for back in request.returns)
        reply = answer(request) if is_received else LeaseReply(billing.lineage)
        os.kill(pid, signal.SIGKILL)
        return reply

    async with control.serving():
        await engine.start()
        catalog.publish(control, tenant)
        record = catalog.replica(f"http://127.0.0.1:{engine.port}")
        control.fleet.publish("replica", "rep_1", record)
        async with gateway_process(tmp_path, control.url) as gateway:
            assert await ask(gateway.url) == 200
            await eventually(lambda: len(billing.events) == 1)
            billing.lease = partial(kill_at_return, gateway.pid)
            for lease in billing.books.leases.values():
                lease.recalled = True
            await eventually(lambda: returned)
        with closing(sqlite3.connect(tmp_path / JOURNAL)) as db:
            in_force = {lease_id for (lease_id,) in db.execute("SELECT lease_id FROM lease_terms")}
        assert not in_force & returned
        assert {billing.books.leases[lease_id].stopped for lease_id in returned} == {is_received}
        billing.lease = answer
        async with gateway_process(tmp_path, control.url) as gateway:
            assert [await ask(gateway.url) for _ in range(3)] == [200] * 3
            await eventually(lambda: len(billing.events) == 4)
            await eventually(lambda: billing.closed >= returned)
        await engine.stop()
    later = list(billing.events.values())[1:]
    assert not returned & {charge.lease_id for event in later for charge in event.charges}
    leases = billing.books.leases.values()
    assert all(one.settled_nanos <= one.keep_nanos for one in leases)
    assert billing.available("balance:org_a") >= 0
