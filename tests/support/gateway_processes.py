"""Gateways as processes of their own, on a socket that the test listens on."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import aiohttp

from serving.engine.simulated.server import Server
from serving.engine.simulated.settings import Settings
from tests.support import catalog
from tests.support.environment import free_port
from tests.support.fake_control import FakeControl
from tests.support.gateway import CREDENTIAL


def environment(
    folder: Path, control: FakeControl, descriptor: int, operator_port: int | None = None
) -> dict[str, str]:
    """Return what a gateway is told."""
    return os.environ | {
        "PENSTOCK_GATEWAY_FD": str(descriptor),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(operator_port or free_port()),
        "PENSTOCK_GATEWAY_DIR": str(folder),
        "PENSTOCK_GATEWAYS_DIR": str(folder.parent),
        "PENSTOCK_CONTROL_URL": control.url,
        "PENSTOCK_FLEET_URL": control.url,
        "PENSTOCK_INTERNAL_CREDENTIAL": CREDENTIAL,
        "PENSTOCK_KEY_PEPPER": catalog.PEPPER,
    }


@asynccontextmanager
async def gateway(
    folder: Path,
    control: FakeControl,
    listening: socket.socket,
    operator_port: int | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a gateway on the socket, told `more`; on leaving it is ended in order."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serving.gateway"),
        env=environment(folder, control, listening.fileno(), operator_port) | more,
        pass_fds=[listening.fileno()],
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until_ready(operator_port: int) -> None:
    """Wait until a gateway says that it is ready."""
    url = f"http://127.0.0.1:{operator_port}/readyz"
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):  # not listening yet
                async with session.get(url) as reply:
                    if reply.status == 200:
                        return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def world(**settings: float) -> AsyncIterator[tuple[FakeControl, socket.socket, str]]:
    """Run a fake control and an engine; yields control, the socket and a key."""
    control, tenant = FakeControl(), catalog.tenant()
    engine = Server(Settings(models=("var_demo",), port=0, context_tokens=512, **settings))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with control.serving():
            await engine.start()
            catalog.publish(control, tenant)
            url = f"http://127.0.0.1:{engine.port}"
            control.fleet.publish("replica", "rep_1", catalog.replica(url))
            yield control, listening, tenant.secret
            await engine.stop()
