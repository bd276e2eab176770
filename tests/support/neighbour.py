"""Who asks beside an attacker, on a connection of its own, and must not notice."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.raw_http import RawClient

PAUSE_SECONDS = 0.01


@asynccontextmanager
async def neighbour(url: str, secret: str) -> AsyncIterator[list[float]]:
    """Ask again and again for the list of models; yields how long each answer took. On leaving it
    fails if one was no answer."""
    seconds: list[float] = []
    asking = asyncio.create_task(_ask(url, secret, seconds))
    try:
        yield seconds
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


async def _ask(url: str, secret: str, seconds: list[float]) -> None:
    wire = f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n\r\n".encode()
    async with RawClient(url) as client:
        while True:
            begun = time.perf_counter()
            await client.send(wire)
            assert (await client.read()).startswith(b"HTTP/1.1 200 ")
            seconds.append(time.perf_counter() - begun)
            await asyncio.sleep(PAUSE_SECONDS)
