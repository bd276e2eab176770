"""The relay: an engine's bytes in, the client's out, with tokens and times noted on the way.

Where the client hangs up just before the first token, with which an engine says what a prompt
took, the call goes on for a moment to learn it, unless another request waits for the slot.
"""

import asyncio
import time
from collections.abc import Callable

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineEvent, TokenUsage
from serving.engine.http_client import ReplicaResponse
from serving.engine.response_parser import ANSWER_BYTES_MAX, ResponseParser
from serving.gateway.cancel_scope import CancelScope
from serving.gateway.dialects.base import Renderer
from serving.gateway.http.response import HttpResponse
from serving.gateway.render_offload import RenderedBody, RenderOffload
from serving.pool.overload import Holder, SharedCapacity

LINGER_SECONDS = 5.0
LINGERING_MAX = 64
"""Requests that go on without their clients, in the whole process. Each organization has at most as
many as it leaves to others, so one alone has 32."""


class DisconnectDrain:
    """How many requests go on without their clients. They keep their slots until somebody waits."""

    def __init__(self) -> None:
        self._room = SharedCapacity(LINGERING_MAX)

    @property
    def total(self) -> int:
        """Of all organizations."""
        return self._room.held

    def enter(self, holder: Holder) -> bool:
        """Count one more, unless there are too many."""
        has_room = self._room.fits(holder, 1)
        if has_room:
            self._room.add(holder, 1)
        return has_room

    def exit(self, holder: Holder) -> None:
        """End what `enter` began."""
        self._room.add(holder, -1)


COUNT_SECONDS = 1.0
"""How long the times between chunks may wait to be counted."""
LONG_BYTES = 1024 * 1024
"""Of an answer whose end is made beside the loop: joining so much takes milliseconds."""


class Relay:
    """One try at an answer; `final_bytes` is what remains to be sent once its usage is durable."""

    def __init__(
        self,
        reading: ResponseParser,
        rendering: Renderer,
        response: HttpResponse,
        cancel_scope: CancelScope,
        *,
        holder: Holder,
        render_offload: RenderOffload,
        inline_bytes_max: int,
        gap_seconds: float,
        observe_gaps: Callable[[list[float]], None],
    ) -> None:
        self.first_token_at: float | None = None
        self.final_bytes = b""
        self.headers = rendering.headers
        self._reading = reading
        self._rendering = rendering
        self._response = response
        self._cancel_scope = cancel_scope
        self._holder = holder
        self._render_offload = render_offload
        self._inline_bytes_max = inline_bytes_max
        self._finished: RenderedBody | None = None
        """Of a long answer that is told whole."""
        self._gap_seconds = gap_seconds
        self._observe_gaps = observe_gaps
        self._gaps: list[float] = []
        """Seconds between chunks, not yet counted."""
        self._last_at = self._counted_at = 0.0

    @property
    def has_usage(self) -> bool:
        """Whether the engine has said anything of what the request takes."""
        return self._finished is not None or self._reading.has_usage

    @property
    def is_done(self) -> bool:
        """Whether the engine has said that this was all."""
        return self._reading.is_done

    @property
    def tokens(self) -> TokenUsage:
        """What the engine has said so far; at the end, what it took in all."""
        return self._reading.tokens if self._finished is None else self._finished.tokens

    async def run(
        self,
        answer: ReplicaResponse,
        on_first_token: Callable[[], None],
        on_last_byte: Callable[[], None],
    ) -> None:
        """Read the answer to its end, so much at once that others have their turn in between.
        `on_last_byte` is called where its end then takes long to make, and memory allows that
        another answer begins meanwhile. Raises EngineError or ClientTooSlow."""
        reading, unread, size = self._reading, b"", 0
        at_once, here, rest = reading.piece_bytes, self._inline_bytes_max, list[bytes]()
        scope, now = self._cancel_scope, asyncio.get_running_loop().time
        is_started = False
        try:
            while unread := await answer.read():
                size += len(unread)
                if reading.is_whole and size > self._inline_bytes_max:
                    _check_size(size)
                    unread, beyond = unread[:here], unread[here:]
                    rest.append(beyond)
                here -= len(unread)
                while unread:
                    piece, unread = unread[:at_once], unread[at_once:]
                    if events := reading.feed(piece):
                        at = time.perf_counter()
                        if self.first_token_at is None:
                            self.first_token_at = at
                            on_first_token()
                        self._forward(events, at)
                    # Where that ended our own task the cancellation is to be met here: before
                    # Python 3.13 one that is taken back unmet strikes at whatever is awaited next.
                    if unread or scope.reason is not None:
                        await asyncio.sleep(0)
                if is_started:
                    scope.deadline_at = now() + self._gap_seconds
                else:
                    is_started = True
                    scope.set_deadline("gap", self._gap_seconds)
        except asyncio.CancelledError:
            # What had arrived was generated: it is metered though nobody will see it.
            reading.feed(unread + answer.read_nowait())
            raise
        finally:
            self._observe_gaps(self._gaps)
        if rest or size > LONG_BYTES:
            with self._render_offload.without_slots(self._holder, size, on_last_byte):
                await self._finish_whole(rest, size)
        else:
            reading.finish()
            self.final_bytes = self._rendering.finish(reading.tokens)

    async def _finish_whole(self, rest: list[bytes], size: int) -> None:
        """Make the end of a long answer, of which `rest` is unread. Raises
        InvalidEngineResponse."""
        if rest and await self._finish_in_worker(rest):
            return
        self._reading.finish()
        finish = self._rendering.finish
        if size > LONG_BYTES:
            self.final_bytes = await asyncio.to_thread(finish, self._reading.tokens)
        else:
            self.final_bytes = finish(self._reading.tokens)

    async def _finish_in_worker(self, rest: list[bytes]) -> bool:
        """Have the end of a long answer made elsewhere; where that cannot be, read it here, and
        return that its end is yet to be made. Raises InvalidEngineResponse."""
        self._cancel_scope.clear_deadline()
        finishing = asyncio.ensure_future(
            self._render_offload.finish(
                self._holder,
                self._reading,
                None if self._cancel_scope.is_detached else self._rendering,
                rest,
            )
        )
        try:
            self._finished = await asyncio.shield(finishing)
        except asyncio.CancelledError:
            # What it took is known soon, and paid for whoever leaves.
            self._finished = await finishing
            raise
        if self._finished is not None:
            self.final_bytes = self._finished.body
            return True
        await self._parse_inline(rest)
        return False

    async def _parse_inline(self, rest: list[bytes]) -> None:
        at_once = self._reading.piece_bytes
        for part in rest:
            for start in range(0, len(part), at_once):
                events = self._reading.feed(part[start : start + at_once])
                self._forward(events, time.perf_counter())
                await asyncio.sleep(0)

    def _forward(self, events: list[EngineEvent], at: float) -> None:
        if self._cancel_scope.is_detached:
            if self.has_usage:
                self._cancel_scope.client_gone()
            return
        data = self._rendering.render(events)
        if not data:
            return
        response = self._response
        if response.status is not None:
            self._gaps.append(at - self._last_at)
            if at - self._counted_at > COUNT_SECONDS:
                self._observe_gaps(self._gaps)
                self._gaps.clear()
                self._counted_at = at
        else:
            response.error_event = self._rendering.error_event
            response.start(200, self.headers)
            self._counted_at = at
        self._last_at = at
        response.write(data)


def _check_size(size: int) -> None:
    if size > ANSWER_BYTES_MAX:
        raise InvalidEngineResponse("the answer is larger than 64 MB")
