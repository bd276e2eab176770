"""One HTTP/1.1 connection to a replica, for one request at a time.

A connection that is out of step would hand one tenant another's answer. So it is used again only
when the request was fully written, its answer is complete and nothing at all came after it.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

import httptools

from serving.engine.errors import AnswerBroken, EngineError, ReplicaUnreachable

HEAD_BYTES_MAX = 64 * 1024
BUFFER_BYTES_MAX = 256 * 1024
"""What waits to be read before the replica is made to wait."""
AT_ONCE_PIECES = 2
"""Of a body: more pieces are a long one."""
LAST_CHUNK = b"0\r\n\r\n"
END_OF_HEAD = b"\r\n\r\n"
SEPARATORS = len(b": \r\n")


class Connection(asyncio.Protocol):
    """Belongs to one event loop. `send`, then `status`, then `read` until it returns nothing."""

    def __init__(self) -> None:
        self.is_closed = False
        self.has_heard = False
        """Whether a byte of the answer came."""
        self._is_blocked = False
        """Whether the replica takes less than it is sent."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: EngineError | None = None
        self._clear()

    def _clear(self) -> None:
        self.has_heard = False
        self._status = 0
        self._head_bytes = 0
        self._is_chunked = self._has_length = False
        self._is_complete = self._may_stay = False
        self._parts: list[bytes] = []
        self._size = 0
        self._last_part = b""
        self._is_paused = False

    @property
    def is_reusable(self) -> bool:
        """Whether the next request may go this way, now that this one's answer was read."""
        is_clean = self._is_complete and self._may_stay and not self._parts
        return is_clean and not self.is_closed and not self._transport.get_write_buffer_size()

    async def send(self, head: bytes, body: Sequence[bytes]) -> None:
        """Write a request. What the replica does not take at once the transport buffers, and a
        long body waits in between; whether it went out is told by `status`."""
        self._clear()
        self._parser = httptools.HttpResponseParser(self)
        if len(body) <= AT_ONCE_PIECES:
            # Copying a short body to its head is cheaper than a write of several buffers.
            self._transport.write(b"".join((head, *body)))
            return
        self._transport.write(head)
        for piece in body:
            if self.is_closed:
                return
            self._transport.write(piece)
            while self._is_blocked and not self.is_closed and not self._status:
                await self._wait()

    async def status(self) -> int:
        """Wait for the answer's head. Raises ReplicaUnreachable without one."""
        while not self._status:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._status

    async def read(self) -> bytes:
        """Return what came of the body, nothing at its end. Raises AnswerBroken."""
        while not self._parts:
            if self._is_complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        return self.read_nowait()

    def read_nowait(self) -> bytes:
        """Return what came of the body and was not read yet."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._is_paused and not self.is_closed:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        """Close it at once; an engine that is still at work hears of it and stops."""
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()

    def pause_writing(self) -> None:
        """The replica is behind."""
        self._is_blocked = True

    def resume_writing(self) -> None:
        """The replica took what it was sent."""
        self._is_blocked = False
        self._wake()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and make the replica wait while too much of it was not read; a byte that
        nobody asked for ends the connection."""
        if self._parser is None or self._is_complete:
            self.close()
            return
        self.has_heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("not HTTP")
        if not self._status:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail("a head without end")
        if self._is_complete:
            self._may_stay = self._may_stay and data.endswith(self._end)
        self._size += len(data)
        if self._size > BUFFER_BYTES_MAX and not self._is_paused and not self.is_closed:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """End what was under way: an answer without a length is complete, any other broken."""
        self.is_closed = True
        ends_here = self._status and not (self._has_length or self._is_chunked)
        if ends_here and error is None and self._error is None:
            self._is_complete = True
        elif not self._is_complete:
            self._fail(type(error).__name__ if error is not None else "closed")
        self._parser = None  # the two hold each other
        self._wake()

    def _fail(self, reason: str) -> None:
        if self._error is None:
            began = AnswerBroken if self._status else ReplicaUnreachable
            self._error = began(f"the connection failed: {reason}")
        self.close()

    @property
    def _end(self) -> bytes:
        """What the last bytes of a complete answer are."""
        return LAST_CHUNK if self._is_chunked else self._last_part or END_OF_HEAD

    # What httptools calls.

    def on_message_begin(self) -> None:
        """Notice an answer that nobody asked for."""
        self._may_stay = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Learn how the body ends."""
        self._head_bytes += len(name) + len(value) + SEPARATORS
        if self._head_bytes > HEAD_BYTES_MAX:
            self._fail("a head without end")
        lowered = name.lower()
        self._has_length |= lowered == b"content-length"
        if lowered == b"transfer-encoding":
            self._is_chunked = value.lower().endswith(b"chunked")

    def on_headers_complete(self) -> None:
        """Learn the status; what an engine says ahead of its answer is skipped."""
        if self._is_complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
        elif status == 101:
            self._fail("another protocol")

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        if not self._is_complete:
            self._last_part = data
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """Note the end of the answer, unless it was only said ahead of it."""
        if self._status and not self._is_complete and self._parser is not None:
            self._is_complete = True
            self._may_stay = self._parser.should_keep_alive()
