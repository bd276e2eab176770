"""A few processes beside the loop, kept between jobs and replaced when one is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from serving.aside.process import Died, Process
from serving.aside.turns import Turns

START_WAIT_SECONDS = 15.0
"""For which a job waits for a process to start."""

log = structlog.get_logger(__name__)


class Late(Exception):
    """The job took longer than it may; its process is no more."""


class Bench:
    """Runs `python -m module…` for whoever's turn it is. Processes start when they are needed.

    A job has `seconds_max` of its process; one that takes longer or goes wrong loses it, and the
    next job gets a new one. A process that is long in starting is the next job's.
    """

    def __init__(self, module: Sequence[str], turns: Turns, *, seconds_max: float) -> None:
        self.lost_count = 0
        self._module = module
        self._turns = turns
        self._seconds_max = seconds_max
        self._idle: list[Process] = []
        self._starting: list[asyncio.Task[Process]] = []
        """What nobody waits for any more."""
        self._is_closed = False

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
        """End all that idle or start; what works ends with its job."""
        self._is_closed = True
        for start in self._starting:
            start.cancel()
        for started in await asyncio.gather(*self._starting, return_exceptions=True):
            if isinstance(started, Process):
                self._idle.append(started)
        self._starting = []
        while self._idle:
            await self._idle.pop().kill()

    async def _take(self) -> Process:
        """Return one that idles or a new one. Raises Died where there is none in time."""
        self._keep_started()
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.kill()
        return await self._start()

    async def _start(self) -> Process:
        start = self._starting.pop() if self._starting else self._begin_to_start()
        try:
            async with asyncio.timeout(START_WAIT_SECONDS):
                return await asyncio.shield(start)
        except BaseException as error:
            self._starting.append(start)
            if isinstance(error, TimeoutError):
                raise Died from None
            raise

    def _begin_to_start(self) -> asyncio.Task[Process]:
        return asyncio.get_running_loop().create_task(Process.start(self._module))

    def _keep_started(self) -> None:
        """Let what came late idle, and forget what never came."""
        done = [start for start in self._starting if start.done()]
        self._starting = [start for start in self._starting if not start.done()]
        self._idle += [
            start.result() for start in done if not start.cancelled() and start.exception() is None
        ]

    async def _put_back(self, process: Process) -> None:
        """Keep a process that has nothing left to answer."""
        is_sound = process.is_alive and not process.is_asked
        if is_sound and not self._is_closed:
            self._idle.append(process)
            return
        if not is_sound:
            self.lost_count += 1
            log.warning("aside_lost", module=self._module[0])
        await process.kill()
