"""The limiters of several gateways, on one Redis."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from serving.limits.limiter import Limiter
from serving.limits.window import RedisWindow
from tests.support.gateway import eventually
from tests.support.redis_server import RedisServer


@asynccontextmanager
async def limiters(server: RedisServer, count: int = 3) -> AsyncIterator[list[Limiter]]:
    """Run so many gateways' limiters, each of which knows how many there are."""
    made = [Limiter(RedisWindow(server.url), lambda: count, Counter()) for _ in range(count)]
    tasks = [asyncio.create_task(limiter.line.run()) for limiter in made]
    try:
        await eventually(lambda: all(limiter.line.is_open for limiter in made))
        yield made
    finally:
        for task, limiter in zip(tasks, made, strict=True):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await limiter.line.close()
