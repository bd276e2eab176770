"""uvicorn's HTTP protocol with timeouts for clients that send a request's head slowly or do not
read the response. `control.asgi_middleware` limits the wait for a body."""

import asyncio
import struct
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""From the opening of a connection, or a request's first byte, to the end of the head."""
HEAD_BYTES_MAX = 64 * 2**10
"""The limit of a head that arrives in pieces; one that arrives in a single read of the socket
(256 KiB at most) is accepted."""
WRITE_SECONDS = 60.0
"""The time that unsent data may stay above the transport's buffer limit (64 KiB): a client that
reads a kilobyte a second stays connected."""

NO_LINGER = struct.pack("ii", 1, 0)
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class DeadlineProtocol(HttpToolsProtocol):
    """Disconnects slow clients."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timeout of the first head."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; after a response they begin the next head."""
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(TOO_LARGE)
                self.transport.close()

    def on_headers_complete(self) -> None:
        """Stop the timeout of the head."""
        self._stop_head_timer()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Start the write timeout: the client reads less than is written."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """Stop the write timeout: the client has read."""
        self._stop_write_timer()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Limit the wait for the rest of a response to be read before the connection closes."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_write_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if the client does not read the rest."""
        super().timeout_keep_alive_handler()
        self._start_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both timeouts."""
        self._stop_head_timer()
        super().connection_lost(exc)
        self._stop_write_timer()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._reset)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer, self._head_bytes = None, 0

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_SECONDS, self._reset)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _reset(self) -> None:
        """Reset the connection at once: a normal close would keep it for minutes."""
        self.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, NO_LINGER)
        self.transport.abort()
