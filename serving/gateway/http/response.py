"""The answer to a client's request: its head, its body in pieces, and an ear for hang-ups.

The head leaves together with the first of the body: a packet and a system call less.
"""

import asyncio
import fcntl
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from serving.gateway.errors import JSON, ApiError, Headers
from serving.gateway.http.write_buffer import (
    PIECE_BYTES,
    ClientTooSlow,
    ResponseWriter,
    WriteBuffer,
    WriteMemory,
    seconds_to_take,
)

CYCLE = "penstock.cycle"
"""Under `extensions` in the scope."""
_COUNT = struct.Struct("i")


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Return how much waits to be taken, what the kernel has included: it asks for more only once
    a third of that is gone, which takes a slow client longer than it is given. Of a line that is
    closed nothing waits."""
    waiting = transport.get_write_buffer_size()
    line = transport.get_extra_info("socket")
    if line is not None:
        with suppress(OSError, ValueError):  # the latter where it has no number any more
            told = fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
            waiting += _COUNT.unpack(told)[0]
    return waiting


def _nobody() -> None:
    """Hear of a hang-up while nobody works on an answer."""


class ResponseCycle(RequestResponseCycle):
    """uvicorn's part of one answer: `begin`, then `write` as often as wanted, then `end`; none of
    them waits for the client."""

    def __init__(self, **made_of: Any) -> None:
        super().__init__(**made_of)
        self._head = b""
        self._on_gone = _nobody

    @property
    def is_blocked(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self.flow.write_paused

    @property
    def unsent_bytes(self) -> int:
        """How much of what was written the client's host has not taken."""
        return unsent_bytes(self.transport)

    async def drain(self) -> None:
        """Wait until the client took what it was sent, or is gone."""
        await self.flow.drain()

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        self.flow.resume_reading()  # the end of a long body may have left it paused
        return self.disconnected

    def watch(self, on_gone: Callable[[], None] = _nobody) -> None:
        """Call this, and nothing else, when the client closes the connection; now if it did."""
        self.flow.resume_reading()  # the end of a long body may have left it paused
        self._on_gone = on_gone
        if self.disconnected:
            on_gone()

    def lose(self) -> None:
        """Hear that the connection is closed."""
        self._on_gone()

    def give_up(self) -> None:
        """Have who works on an answer stop: the client, which is told something else, is gone."""
        self.disconnected = True
        self.message_event.set()

    def abort(self) -> None:
        """Close the connection, whatever it still holds."""
        self.transport.abort()

    def begin(self, status: int, headers: Headers) -> None:
        """Make the head. Raises ValueError when a header would be two."""
        lines = [STATUS_LINE[status]]
        # HTTP/1.0 knows no chunks: there a body without a length ends with the connection.
        self.chunked_encoding = self.scope["http_version"] != "1.0"
        for name, value in (*self.default_headers, *headers):
            if name == b"connection":
                self.keep_alive = False
                continue
            if name == b"content-length":
                self.chunked_encoding = False
            lines.append(b"%b: %b\r\n" % (name, value))
        if self.chunked_encoding:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        self._head = b"".join(lines) + b"\r\n"
        if self._head.count(b"\n") != len(lines) + 1:
            raise ValueError("a header holds a line break")
        self.response_started = True
        self.waiting_for_100_continue = False

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        if self.disconnected:
            return
        if self.chunked_encoding:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            self._send_out(data)
        elif self.scope["method"] != "HEAD":
            self.transport.write(data)

    def end(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        if self.disconnected:
            return
        if self.chunked_encoding:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        self._send_out(data)
        self.response_complete = True
        self.message_event.set()
        self.on_response()

    def _send_out(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.transport.write(head if self.scope["method"] == "HEAD" else head + data)

    async def send(self, message: Any) -> None:
        """Send in ASGI's words, as fast as the client takes it."""
        if message["type"] == "http.response.start":
            self.begin(message["status"], message["headers"])
            return
        await self.drain()
        if message.get("more_body"):
            self.write(message["body"])
        else:
            self.end(message["body"])


class ClientDisconnected(Exception):
    """The client closed the connection before its request was read, or took no more of its
    answer."""


def no_headers() -> Headers:
    """Return nothing."""
    return ()


class HttpResponse:
    """What a client is told; `request_id` is also the id of the usage event."""

    def __init__(
        self,
        cycle: ResponseCycle,
        request_id: str,
        client_request_id: str | None,
        memory: WriteMemory,
    ) -> None:
        self.request_id = request_id
        self.started_at = time.perf_counter()
        self.status: int | None = None
        self.headers: Headers = ()
        """Of the answer that has started, besides our own."""
        self.id_headers: tuple[bytes, ...] = ()
        """Where the client looks for the request's id."""
        self.cors_headers: Headers = ()
        self.limit_headers: Callable[[], Headers] = no_headers
        """How the caller's rate limits stand, asked when the answer starts."""
        self.error_event: Callable[[ApiError], bytes] | None = None
        """An error as the end of a stream that has started."""
        self._client_request_id = client_request_id
        self._cycle = cycle
        self._memory = memory
        self._buffer: WriteBuffer | None = None
        self._writer: ResponseWriter | None = None
        """What the body goes through once the client has not taken all at once, or somebody else
        wants it too: most answers need none."""

    @property
    def has_started(self) -> bool:
        """Whether the client has seen a status."""
        return self.status is not None

    @property
    def is_disconnected(self) -> bool:
        """Whether the client has closed the connection."""
        return self._cycle.is_gone

    def on_disconnect(self, act: Callable[[], None]) -> "DisconnectWatch":
        """Call `act` as soon as the client closes the connection, within a `with` block."""
        return DisconnectWatch(self._cycle, act)

    def write_through(self, wrap: Callable[[ResponseWriter], ResponseWriter]) -> None:
        """Write the body, but for its last piece, through what `wrap` makes of the way out."""
        self._writer = wrap(self._through_buffer())

    def start(self, status: int, headers: Headers) -> None:
        """Answer with a status and headers; ours are on every answer."""
        self.status, self.headers = status, headers
        elapsed_ms = int((time.perf_counter() - self.started_at) * 1_000)
        request_id = self.request_id.encode()
        ours = [(name, request_id) for name in self.id_headers]
        ours.append((b"openai-processing-ms", b"%d" % elapsed_ms))
        if self._client_request_id is not None:
            label = self._client_request_id.encode("ascii", "replace")
            ours.append((b"x-client-request-id", label))
        self._cycle.begin(status, [*headers, *self.cors_headers, *self.limit_headers(), *ours])

    def write(self, data: bytes) -> None:
        """Send a piece of the body, or keep it for a slow client. Raises ClientTooSlow."""
        if self._writer is None and not self._cycle.flow.write_paused:
            self._cycle.write(data)
        else:
            self._through_buffer().put(data)

    async def write_all(self, data: bytes) -> None:
        """Send what is there already, as fast as the client takes it. Raises ClientDisconnected."""
        writer = self._through_buffer()
        try:
            async with asyncio.timeout(seconds_to_take(len(data))):
                for start in range(0, len(data), PIECE_BYTES):
                    await writer.flush()
                    writer.put(data[start : start + PIECE_BYTES])
        except (ClientTooSlow, TimeoutError):
            self.abort()
            raise ClientDisconnected from None

    async def finish(self, data: bytes = b"") -> None:
        """Send what is left of the body. Raises ClientDisconnected when it is not taken."""
        try:
            if self._writer is not None or self._cycle.flow.write_paused:
                await self._through_buffer().flush()
            if len(data) > PIECE_BYTES:
                data = await self._own_buffer().pour(data)
        except ClientTooSlow:
            self.abort()
            raise ClientDisconnected from None
        self._cycle.end(data)

    async def send(self, status: int, data: bytes, headers: Headers = JSON) -> None:
        """Send a whole answer. Raises ClientDisconnected."""
        self.start(status, [*headers, (b"content-length", b"%d" % len(data))])
        await self.finish(data)

    async def break_off(self, error: ApiError) -> None:
        """End an answer that has started: a stream in words, a whole one by the connection's end.
        Raises ClientDisconnected."""
        if self.error_event is None:
            self.abort()
        else:
            await self.finish(self.error_event(error))

    def abort(self) -> None:
        """Close the connection at once."""
        self._through_buffer().cut()

    def close(self) -> None:
        """Forget what the client did not take."""
        if self._writer is not None:
            self._writer.drop()

    def _through_buffer(self) -> ResponseWriter:
        if self._writer is None:
            self._writer = self._own_buffer()
        return self._writer

    def _own_buffer(self) -> WriteBuffer:
        if self._buffer is None:
            self._buffer = WriteBuffer(self._cycle, self._memory)
        return self._buffer


class DisconnectWatch:
    """`with` it: hears of a hang-up meanwhile."""

    __slots__ = ("_act", "_cycle")

    def __init__(self, cycle: ResponseCycle, act: Callable[[], None]) -> None:
        self._cycle = cycle
        self._act = act

    def __enter__(self) -> None:
        self._cycle.watch(self._act)

    def __exit__(self, *_: object) -> None:
        self._cycle.watch()
