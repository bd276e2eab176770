"""A gateway killed at random moments: whoever saw the end is billed exactly once."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from serving.engine.simulated.server import Server
from serving.engine.simulated.settings import Settings
from tests.support import catalog
from tests.support.environment import free_port
from tests.support.fake_control import FakeControl
from tests.support.gateway import SECRET
from tests.support.load import Door, crowd

KILLS = 3


@asynccontextmanager
async def gateway_process(folder: Path, control: FakeControl, port: int) -> AsyncIterator[int]:
    """Run `python -m serving.gateway` until it is ready; yields its process id."""
    operator_port = free_port()
    environment = os.environ | {
        "PENSTOCK_GATEWAY_PORT": str(port),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(operator_port),
        "PENSTOCK_GATEWAY_DIR": str(folder),
        "PENSTOCK_CONTROL_URL": control.url,
        "PENSTOCK_FLEET_URL": control.url,
        "PENSTOCK_INTERNAL_SECRET": SECRET,
        "PENSTOCK_KEY_PEPPER": catalog.PEPPER,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serving.gateway", env=environment
    )
    try:
        await _until_ready(f"http://127.0.0.1:{operator_port}/readyz")
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _until_ready(url: str) -> None:
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):  # not listening yet
                async with session.get(url) as reply:
                    if reply.status == 200:
                        return
            await asyncio.sleep(0.05)


@pytest.mark.faults
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
            async with gateway_process(tmp_path, control, port) as pid:
                await asyncio.sleep(1 + random.Random(kill).random())
                if kill < KILLS:
                    os.kill(pid, signal.SIGKILL)
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
