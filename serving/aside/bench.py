"""A few processes beside the loop, kept between jobs and replaced when one is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from serving.aside.process import Process
from serving.aside.turns import Turns

log = structlog.get_logger(__name__)


class Late(Exception):
    """The job took longer than it may; its process is no more."""


class Bench:
    """Runs `python -m module…` for whoever's turn it is. Processes start when they are needed.

    A job has `seconds_max` of its process; one that takes longer or goes wrong loses it, and the
    next job gets a new one.
    """

    def __init__(self, module: Sequence[str], turns: Turns, *, seconds_max: float) -> None:
        self.lost_count = 0
        self._module = module
        self._turns = turns
        self._seconds_max = seconds_max
        self._idle: list[Process] = []

    @property
    def idle_count(self) -> int:
        """How many processes are kept for the next job."""
        return len(self._idle)

    @asynccontextmanager
    async def process(self, organization_id: str) -> AsyncIterator[Process]:
        """Wait for a turn and have a process. Raises Busy, Late, and Died where it is asked."""
        async with self._turns.turn(organization_id):
            process = await self._take()
            try:
                async with asyncio.timeout(self._seconds_max):
                    yield process
            except TimeoutError:
                raise Late from None
            finally:
                await self._put_back(process)

    async def warm(self) -> None:
        """Have a process ready before anybody asks. Raises Died."""
        self._idle.append(await Process.start(self._module))

    async def close(self) -> None:
        """End all that idle; whoever works is cancelled by its own caller."""
        while self._idle:
            await self._idle.pop().kill()

    async def _take(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.kill()
        return await Process.start(self._module)

    async def _put_back(self, process: Process) -> None:
        """Keep a process that has nothing left to answer."""
        if process.is_alive and not process.is_asked:
            self._idle.append(process)
            return
        self.lost_count += 1
        log.warning("aside_lost", module=self._module[0])
        await process.kill()
