"""Kept connections to replicas, and one call over one of them."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import httptools

from serving.engine.errors import EngineError, InvalidEngineResponse, ReplicaUnreachable
from serving.silent_peers import bound_silence

HEAD_BYTES_MAX = 64 * 1024
BUFFER_BYTES_MAX = 256 * 1024
"""What waits to be read before the replica is made to wait."""
AT_ONCE_PIECES = 2
"""Of a body: more pieces are a long one."""
LAST_CHUNK = b"0\r\n\r\n"
END_OF_HEAD = b"\r\n\r\n"
SEPARATORS = len(b": \r\n")


class ReplicaConnection(asyncio.Protocol):
    """Belongs to one event loop. `send`, then `status`, then `read` until it returns nothing."""

    def __init__(self) -> None:
        self.is_closed = False
        self.has_received = False
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
        self.has_received = False
        self._status = 0
        self._head_bytes = 0
        self._is_chunked = self._has_length = False
        self._is_complete = self._may_stay = False
        self._parts: list[bytes] = []
        self._size = 0
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
        """Return what came of the body, nothing at its end. Raises InvalidEngineResponse."""
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
        self.has_received = True
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
            began = InvalidEngineResponse if self._status else ReplicaUnreachable
            self._error = began(f"the connection failed: {reason}")
        self.close()

    @property
    def _end(self) -> bytes:
        """What the last bytes of a complete answer are."""
        if self._is_chunked:
            return LAST_CHUNK
        return self._parts[-1] if self._parts else END_OF_HEAD

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
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """Note the end of the answer, unless it was only said ahead of it."""
        if self._status and not self._is_complete and self._parser is not None:
            self._is_complete = True
            self._may_stay = self._parser.should_keep_alive()


IDLE_SECONDS = 4.0
"""Below the 5 s after which a replica's HTTP server closes an idle connection."""


class ReplicaAddress(NamedTuple):
    """Where a replica listens."""

    host: str
    port: int


class ConnectionPool:
    """Belongs to one event loop; as many connections as there are requests, which pools bound."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[ReplicaAddress, deque[tuple[ReplicaConnection, float]]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def acquire(self, address: ReplicaAddress) -> ReplicaConnection | None:
        """Return the connection that was used last, if it was used lately."""
        idle = self._idle.get(address)
        while idle:
            connection, since = idle.pop()
            if not connection.is_closed and self._loop.time() - since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def open(self, address: ReplicaAddress, connect_seconds: float) -> ReplicaConnection:
        """Return a new connection. Raises ReplicaUnreachable."""
        try:
            async with asyncio.timeout(connect_seconds):
                transport, connection = await self._loop.create_connection(
                    ReplicaConnection, *address
                )
            bound_silence(transport.get_extra_info("socket"))
        except (TimeoutError, OSError) as error:
            raise ReplicaUnreachable(type(error).__name__) from error
        return connection

    def release(self, address: ReplicaAddress, connection: ReplicaConnection) -> None:
        """Keep a connection for the next request if it is fit for one."""
        if not connection.is_reusable:
            connection.close()
            return
        self._idle.setdefault(address, deque()).append((connection, self._loop.time()))
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_SECONDS, self._close_stale)

    def close(self) -> None:
        """Close all that wait."""
        self._close_until(float("inf"))
        if self._sweep is not None:
            self._sweep.cancel()

    def _close_stale(self) -> None:
        self._close_until(self._loop.time() - IDLE_SECONDS)
        waits = bool(self._idle)
        self._sweep = self._loop.call_later(IDLE_SECONDS, self._close_stale) if waits else None

    def _close_until(self, moment: float) -> None:
        for address, idle in list(self._idle.items()):
            while idle and (idle[0][1] <= moment or idle[0][0].is_closed):
                idle.popleft()[0].close()
            if not idle:
                del self._idle[address]


PORT = 80


class ReplicaResponse(Protocol):
    """What a replica answers: a status, then a body in pieces."""

    async def status(self) -> int:
        """Wait for the status. Raises ReplicaUnreachable."""

    async def read(self) -> bytes:
        """Return the next piece, nothing at the end. Raises InvalidEngineResponse."""

    def read_nowait(self) -> bytes:
        """Return what came and was not read yet."""


class ReplicaCall:
    """`async with` it: yields the answer once its head is there; leaving early ends the work.

    A kept connection may have been closed while the request was on its way. When not a byte of
    the answer came, the request goes out once more on a fresh one: that is no fault of anybody.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        url: str,
        body: Sequence[bytes],
        headers: Mapping[str, str],
        *,
        connect_seconds: float,
    ) -> None:
        self._connections = connections
        self._address, start = _address(url)
        self._head = _head(start, headers, sum(map(len, body)))
        self._body = body
        self._connect_seconds = connect_seconds
        self._connection: ReplicaConnection | None = None

    async def __aenter__(self) -> ReplicaConnection:
        """Raises ReplicaUnreachable."""
        kept = self._connections.acquire(self._address)
        if kept is not None:
            try:
                return await self._begin(kept)
            except ReplicaUnreachable:
                if kept.has_received:
                    raise
        return await self._begin(await self._connections.open(self._address, self._connect_seconds))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            self._connections.release(self._address, self._connection)

    async def _begin(self, connection: ReplicaConnection) -> ReplicaConnection:
        try:
            await connection.send(self._head, self._body)
            await connection.status()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


@lru_cache(maxsize=4_096)
def _address(url: str) -> tuple[ReplicaAddress, bytes]:
    """Return where a URL leads, and the request's first lines."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise EngineError("a replica's URL is not http")
    host = parts.netloc.rpartition("@")[2]
    start = f"POST {parts.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return ReplicaAddress(parts.hostname, parts.port or PORT), start.encode()


def _head(start: bytes, headers: Mapping[str, str], length: int) -> bytes:
    lines = ""
    for name, value in headers.items():
        lines += f"{name}: {value}\r\n"
    if lines.count("\n") != len(headers):
        raise ValueError("a header holds a line break")
    return b"%b%bcontent-length: %d\r\n\r\n" % (start, lines.encode("latin-1"), length)


class HttpsCall(Protocol):
    """Makes a call to an `https` address."""

    def __call__(
        self, url: str, body: Sequence[bytes], headers: Mapping[str, str], *, connect_seconds: float
    ) -> AbstractAsyncContextManager[ReplicaResponse]:
        """Return a call that posts JSON in pieces, to enter with `async with`."""


class ReplicaClient:
    """One per process: connections of its own for `http`, calls that it is handed for `https`."""

    def __init__(self, https_call: HttpsCall) -> None:
        self._connections = ConnectionPool()
        self._https_call = https_call

    def call(
        self, url: str, body: Sequence[bytes], headers: Mapping[str, str], *, connect_seconds: float
    ) -> AbstractAsyncContextManager[ReplicaResponse]:
        """Return a call that posts JSON in pieces, to enter with `async with`."""
        if url.startswith("https:"):
            return self._https_call(url, body, headers, connect_seconds=connect_seconds)
        return ReplicaCall(self._connections, url, body, headers, connect_seconds=connect_seconds)

    def close(self) -> None:
        """Close the connections that wait."""
        self._connections.close()
