"""Long answers that are told whole: made in a worker process, since to make one keeps an event
loop, and whoever needs the interpreter beside it, busy for tenths of a second.

Measured on one core of a server: two million numbers, written as text, take 250 ms of the loop
where they are made on it, and 50 where they go to a process and come back; as base64 43 and 14.

An answer goes there as far as it was read here, with the rest of the engine's bytes as the
payload, and comes back as what it took, with the client's body.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import TokenUsage
from serving.engine.response_parser import ResponseParser
from serving.gateway.dialects.base import Renderer
from serving.offload.pool import WORKER, OffloadBusy, OffloadPool, OffloadTimeout, TenantSemaphore
from serving.offload.process import WorkerDied, WorkerProcess
from serving.offload.worker import serve
from serving.pool.overload import Holder, SharedCapacity


@dataclass(frozen=True, slots=True)
class RenderJob:
    """Both as they stand; without `renderer` nobody waits for the body."""

    parser: ResponseParser
    renderer: Renderer | None


@dataclass(frozen=True, slots=True)
class RenderUsage:
    """What the engine says it took."""

    tokens: TokenUsage


@dataclass(frozen=True, slots=True)
class RenderFailure:
    """Why it is no answer."""

    reason: str


Reply = RenderUsage | RenderFailure


PROCESSES = 2
SECONDS_MAX = 30.0
WAIT_SECONDS_MAX = 60.0
WAITING_MAX = 4_096
"""Answers, bounded by the slots of their replicas, or by their bytes where they gave these up."""
VACATED_BYTES_MAX = 256 * 1024 * 1024
"""Of answers without slots, of which an organization may have as much as it leaves to others."""
JOINED_HERE_BYTES_MAX = 1024 * 1024
"""Joining more takes milliseconds; a thread joins without the interpreter."""


class RenderedBody(NamedTuple):
    """What an answer took, and the client's body."""

    tokens: TokenUsage
    body: bytes


class RenderOffload:
    """Keeps the processes that make long answers."""

    def __init__(self) -> None:
        turns = TenantSemaphore(
            PROCESSES,
            waiting_max=WAITING_MAX,
            waiting_of_one_max=WAITING_MAX,
            wait_seconds_max=WAIT_SECONDS_MAX,
        )
        self.pool = OffloadPool(
            (WORKER, "serving.gateway.render_offload:serve_render_jobs"),
            turns,
            seconds_max=SECONDS_MAX,
        )
        self.unfinished = 0
        self._vacated = SharedCapacity(VACATED_BYTES_MAX)

    @contextmanager
    def without_slots(
        self, holder: Holder, size: int, vacate: Callable[[], None]
    ) -> Iterator[None]:
        """Let an answer of so many bytes `vacate` its slots before its end is made, where there is
        room: the memory of others stays bounded by their slots."""
        if not self._vacated.fits(holder, size):
            yield
            return
        self._vacated.add(holder, size)
        try:
            vacate()
            yield
        finally:
            self._vacated.add(holder, -size)

    async def finish(
        self,
        holder: Holder,
        reading: ResponseParser,
        rendering: Renderer | None,
        rest: Sequence[bytes],
    ) -> RenderedBody | None:
        """Return the end of an answer of which all but `rest` was read; without `rendering` its
        tokens alone. None where no process is to be had for it, and what was read stays as it was.

        Raises InvalidEngineResponse.
        """
        begun = RenderJob(reading, rendering)
        try:
            async with self.pool.process(
                holder.organization_id, is_paying=holder.is_paying
            ) as process:
                return await _ask(process, begun, rest)
        except (OffloadBusy, OffloadTimeout, WorkerDied):
            self.unfinished += 1
            return None

    async def close(self) -> None:
        """End the processes."""
        await self.pool.close()


async def _ask(process: WorkerProcess, begun: RenderJob, rest: Sequence[bytes]) -> RenderedBody:
    reply, pieces = await process.ask(begun, rest)
    if isinstance(reply, RenderFailure):
        raise InvalidEngineResponse(reply.reason)
    if sum(map(len, pieces)) <= JOINED_HERE_BYTES_MAX:
        return RenderedBody(reply.tokens, b"".join(pieces))
    return RenderedBody(reply.tokens, await asyncio.to_thread(b"".join, pieces))


WORKER_SECONDS_MAX = 60.0
"""More than a gateway waits."""
WORKER_MEMORY_BYTES = 2 * 1024**3
WORKER_NICENESS = 5
"""Who shares the machine goes first: no engine waits for a body, and few clients do for long."""


def render(begun: RenderJob, payload: bytes) -> tuple[Reply, bytes]:
    """Read an answer to its end, and return the client's body."""
    try:
        return _render(begun, payload)
    except InvalidEngineResponse as broken:
        return RenderFailure(str(broken)), b""


def _render(begun: RenderJob, payload: bytes) -> tuple[Reply, bytes]:
    reading, rendering = begun.parser, begun.renderer
    events = reading.feed(payload)
    if rendering is None:
        reading.finish()
        return RenderUsage(reading.tokens), b""
    rendering.render(events)
    reading.finish()
    return RenderUsage(reading.tokens), rendering.finish(reading.tokens)


def serve_render_jobs() -> None:
    """Render answers in a worker process, until the gateway is gone."""
    os.nice(WORKER_NICENESS)
    serve(render, seconds_max=WORKER_SECONDS_MAX, memory_bytes=WORKER_MEMORY_BYTES)
