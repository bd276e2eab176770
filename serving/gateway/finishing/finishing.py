"""Long answers that are told whole: made in a process, since to make one keeps an event loop, and
whoever needs the interpreter beside it, busy for tenths of a second.

Measured on one core of a server: two million numbers, written as text, take 250 ms of the loop
where they are made on it, and 50 where they go to a process and come back; as base64 43 and 14.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import TokenUsage
from serving.engine.response_parser import ResponseParser
from serving.gateway.dialects.base import Renderer
from serving.gateway.finishing.questions import Begun, Broken
from serving.offload.pool import OffloadBusy, OffloadPool, OffloadTimeout, TenantSemaphore
from serving.offload.process import WorkerDied, WorkerProcess
from serving.pool.overload import SharedCapacity

PROCESSES = 2
SECONDS_MAX = 30.0
WAIT_SECONDS_MAX = 60.0
WAITING_MAX = 4_096
"""Answers, bounded by the slots of their replicas, or by their bytes where they gave these up."""
VACATED_BYTES_MAX = 256 * 1024 * 1024
"""Of answers without slots, of which an organization may have as much as it leaves to others."""
JOINED_HERE_BYTES_MAX = 1024 * 1024
"""Joining more takes milliseconds; a thread joins without the interpreter."""


class Finished(NamedTuple):
    """What an answer took, and the client's body."""

    tokens: TokenUsage
    body: bytes


class Finishing:
    """Keeps the processes that make long answers."""

    def __init__(self) -> None:
        turns = TenantSemaphore(
            PROCESSES,
            waiting_max=WAITING_MAX,
            waiting_of_one_max=WAITING_MAX,
            wait_seconds_max=WAIT_SECONDS_MAX,
        )
        self.bench = OffloadPool(("serving.gateway.finishing",), turns, seconds_max=SECONDS_MAX)
        self.unfinished = 0
        self._vacated = SharedCapacity(VACATED_BYTES_MAX)

    @contextmanager
    def without_slots(
        self, organization_id: str, size: int, vacate: Callable[[], None]
    ) -> Iterator[None]:
        """Let an answer of so many bytes `vacate` its slots before its end is made, where there is
        room: the memory of others stays bounded by their slots."""
        if not self._vacated.fits(organization_id, 1, size):
            yield
            return
        self._vacated.add(organization_id, size)
        try:
            vacate()
            yield
        finally:
            self._vacated.add(organization_id, -size)

    async def finish(
        self,
        organization_id: str,
        reading: ResponseParser,
        rendering: Renderer | None,
        rest: Sequence[bytes],
    ) -> Finished | None:
        """Return the end of an answer of which all but `rest` was read; without `rendering` its
        tokens alone. None where no process is to be had for it, and what was read stays as it was.

        Raises InvalidEngineResponse.
        """
        begun = Begun(reading, rendering)
        try:
            async with self.bench.process(organization_id) as process:
                return await _ask(process, begun, rest)
        except (OffloadBusy, OffloadTimeout, WorkerDied):
            self.unfinished += 1
            return None

    async def close(self) -> None:
        """End the processes."""
        await self.bench.close()


async def _ask(process: WorkerProcess, begun: Begun, rest: Sequence[bytes]) -> Finished:
    reply, pieces = await process.ask(begun, rest)
    if isinstance(reply, Broken):
        raise InvalidEngineResponse(reply.reason)
    if sum(map(len, pieces)) <= JOINED_HERE_BYTES_MAX:
        return Finished(reply.tokens, b"".join(pieces))
    return Finished(reply.tokens, await asyncio.to_thread(b"".join, pieces))
