"""Who loads when: a few engines at once, each of which takes cores and memory to itself.

Two that load on two cores take twice as long each, and both look for memory before either took it.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CORES = 2
"""Of each engine that loads: imports keep one busy, weights and warming up the others."""
WAIT_SECONDS_MAX = 120.0
"""Then one goes ahead all the same: another may never end."""


def loads_at_once() -> int:
    """Return how many engines this machine has the cores to load."""
    return max(1, len(os.sched_getaffinity(0)) // CORES)


class LoadingTurns:
    """Turns in order of arrival."""

    def __init__(self, at_once: int, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._wait_seconds_max = wait_seconds_max

    @property
    def is_full(self) -> bool:
        """Whether the next one has to wait."""
        return self._free.locked()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, though not for ever, and have it until the block ends."""
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await self._free.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            self._free.release()
