"""One request and its answer on a connection, and what the application answers with.

The head leaves together with the first of the body: a packet and a system call less.
"""

import asyncio
import fcntl
import struct
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from serving.gateway.errors import JSON, ApiError, Headers
from serving.gateway.http.write_buffer import (
    ANONYMOUS,
    PIECE_BYTES,
    ClientTooSlow,
    ResponseWriter,
    WriteBuffer,
    WriteMemory,
    seconds_to_take,
)
from serving.pool.overload import Holder

PHRASES = {status.value: status.phrase for status in HTTPStatus}
STATUS_LINES = {
    status: f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\n".encode()
    for status in range(100, 600)
}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_COUNT = struct.Struct("i")


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    return b"date: %b\r\n" % formatdate(second, usegmt=True).encode()


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


class ClientDisconnected(Exception):
    """The client closed the connection before its request was read, or took no more of its
    answer."""


class ClientConnection(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    is_read_paused: bool
    is_write_paused: bool

    def resume_reading(self) -> None: ...
    async def drain(self) -> None: ...
    def release(self) -> None: ...
    def end_exchange(self) -> None: ...


class Exchange:
    """A request and its answer, as the server has them: `read` the body, then `start`, `write` as
    often as wanted, and `end` the answer. Only `read` and `drain` wait for the client."""

    def __init__(
        self,
        connection: ClientConnection,
        *,
        method: str,
        path: str,
        is_old: bool,
        headers: Sequence[tuple[bytes, bytes]],
        peer: str,
        keep_alive: bool,
        awaits_continue: bool,
    ) -> None:
        self.connection = connection
        self.method = method
        self.path = path
        self.headers = headers
        """With names in lower case, in the order in which they came."""
        self.peer = peer
        self.keep_alive = keep_alive
        """Whether another request may follow on the connection."""
        self.unread_bytes = 0
        self.has_whole_body = False
        self.has_started = False
        self.is_complete = False
        self.is_disconnected = False
        self.is_released = False
        """Whether the connection may be closed to make room, and what comes of the body is dropped.
        """
        self._is_old = is_old
        self._awaits_continue = awaits_continue
        self._parts: list[bytes] = []
        self._arrival: asyncio.Future[None] | None = None
        self._head = b""
        self._is_chunked = False
        self.on_gone = _nobody
        """Called when the client closes the connection."""

    def feed(self, part: bytes) -> None:
        """Take a part of the body."""
        self._parts.append(part)
        self.unread_bytes += len(part)
        if self._arrival is not None:
            self._wake()

    def end_body(self) -> None:
        """Hear that the whole body came."""
        self.has_whole_body = True
        if self._arrival is not None:
            self._wake()

    async def read(self) -> bytes:
        """Return what came of the body since the last time, nothing at its end; a client that waits
        to be asked for it is asked. Raises ClientDisconnected."""
        connection = self.connection
        if self._awaits_continue and not (self.has_started or self.is_disconnected):
            self._awaits_continue = False
            connection.transport.write(CONTINUE)
        if connection.is_read_paused:
            connection.resume_reading()
        while not (self._parts or self.has_whole_body or self.is_disconnected):
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        if self.is_disconnected:
            raise ClientDisconnected
        parts, self._parts, self.unread_bytes = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def release_connection(self) -> None:
        """Let the connection be closed to make room for another, and keep nothing of the body."""
        self.is_released = True
        self._parts, self.unread_bytes = [], 0
        if not self.is_disconnected:
            self.connection.release()

    @property
    def is_blocked(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self.connection.is_write_paused

    @property
    def unsent_bytes(self) -> int:
        """How much of what was written the client's host has not taken."""
        return unsent_bytes(self.connection.transport)

    async def drain(self) -> None:
        """Wait until the client took what it was sent, or is gone."""
        await self.connection.drain()

    def on_disconnect(self, act: Callable[[], None]) -> None:
        """Call this, and nothing else, when the client closes the connection; now if it did."""
        self.on_gone = act
        if self.has_left:
            act()

    @property
    def has_left(self) -> bool:
        """Whether the client has closed the connection."""
        if self.connection.is_read_paused:  # by the end of a long body
            self.connection.resume_reading()
        return self.is_disconnected

    def lose(self) -> None:
        """Hear that the connection is closed."""
        if not self.is_complete:
            self.give_up()
        self.on_gone()

    def give_up(self) -> None:
        """Have who works on an answer stop: the client, which is told something else, is gone."""
        self.is_disconnected = True
        self._wake()

    def abort(self) -> None:
        """Close the connection, whatever it still holds."""
        self.connection.transport.abort()

    def start(self, status: int, headers: Headers) -> None:
        """Make the head. Raises ValueError when a header would be two."""
        lines = [STATUS_LINES[status], _date_line(int(time.time()))]
        # HTTP/1.0 knows no chunks: there a body without a length ends with the connection.
        self._is_chunked = not self._is_old
        for name, value in headers:
            if name == b"connection":
                self.keep_alive = False
                continue
            if name == b"content-length":
                self._is_chunked = False
            lines.append(b"%b: %b\r\n" % (name, value))
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        self._head = b"".join(lines) + b"\r\n"
        if self._head.count(b"\n") != len(lines) + 1:
            raise ValueError("a header holds a line break")
        self.has_started = True

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        if self.is_disconnected:
            return
        if self._is_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head or self.method == "HEAD":
            self._send(data)
        else:
            self.connection.transport.write(data)

    def end(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        if self.is_disconnected:
            return
        if self._is_chunked:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        self._send(data)
        self.is_complete = True
        self.connection.end_exchange()

    def _send(self, data: bytes) -> None:
        if self.method == "HEAD":
            data = b""
        if self._head:
            data, self._head = self._head + data, b""
        self.connection.transport.write(data)

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def no_headers() -> Headers:
    """Return nothing."""
    return ()


class HttpResponse:
    """What a client is told; `request_id` is also the id of the usage event."""

    def __init__(
        self,
        exchange: Exchange,
        request_id: str,
        client_request_id: str | None,
        memory: WriteMemory,
    ) -> None:
        self.request_id = request_id
        self.started_at = time.perf_counter()
        self.holder: Holder = ANONYMOUS
        """Whose memory it is that an answer takes which the client is slow to read."""
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
        self._exchange = exchange
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
        return self._exchange.has_left

    def on_disconnect(self, act: Callable[[], None]) -> "DisconnectWatch":
        """Call `act` as soon as the client closes the connection, within a `with` block."""
        return DisconnectWatch(self._exchange, act)

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
        self._exchange.start(status, [*headers, *self.cors_headers, *self.limit_headers(), *ours])

    def write(self, data: bytes) -> None:
        """Send a piece of the body, or keep it for a slow client. Raises ClientTooSlow."""
        if self._writer is None and not self._exchange.connection.is_write_paused:
            self._exchange.write(data)
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
            if self._writer is not None or self._exchange.connection.is_write_paused:
                await self._through_buffer().flush()
            if len(data) > PIECE_BYTES:
                data = await self._own_buffer().pour(data)
        except ClientTooSlow:
            self.abort()
            raise ClientDisconnected from None
        self._exchange.end(data)

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
        self._through_buffer().abort()

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
            self._buffer = WriteBuffer(self._exchange, self._memory, self.holder)
        return self._buffer


class DisconnectWatch:
    """`with` it: hears of a hang-up meanwhile."""

    __slots__ = ("_act", "_exchange")

    def __init__(self, exchange: Exchange, act: Callable[[], None]) -> None:
        self._exchange = exchange
        self._act = act

    def __enter__(self) -> None:
        self._exchange.on_disconnect(self._act)

    def __exit__(self, *_: object) -> None:
        self._exchange.on_gone = _nobody
