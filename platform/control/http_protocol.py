"""uvicorn's HTTP protocol with an end to each wait for a client: for the head of its request, and
for room to write where it does not read. `control.asgi_middleware` bounds the wait for a body."""

import asyncio
import struct
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""From a connection's first moment, or a request's first byte, to the end of the head."""
HEAD_BYTES_MAX = 64 * 2**10
"""Of a head that comes in pieces; one read of the socket (256 KiB at most) is taken as it is."""
WRITE_SECONDS = 60.0
"""How long what is written may stay above what the transport likes to hold (64 KiB): who reads a
kilobyte a second stays."""

AT_ONCE = struct.pack("ii", 1, 0)
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class DeadlineProtocol(HttpToolsProtocol):
    """Hangs up on whoever lets us wait."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; between two requests they begin a head."""
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(TOO_LARGE)
                self.transport.close()

    def on_headers_complete(self) -> None:
        """A head is there."""
        self._head_is_there()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The client reads less than is written."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """It has read."""
        self._reader_is_there()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """An answer is written; a connection that ends with it ends though nobody reads it."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing was asked for a while: end, though nobody reads what is left."""
        super().timeout_keep_alive_handler()
        self._wait_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._head_is_there()
        super().connection_lost(exc)
        self._reader_is_there()

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._reset)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer, self._head_bytes = None, 0

    def _wait_for_reader(self) -> None:
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_SECONDS, self._reset)

    def _reader_is_there(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _reset(self) -> None:
        """End the connection at once: by itself it would be kept for minutes."""
        self.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, AT_ONCE)
        self.transport.abort()
