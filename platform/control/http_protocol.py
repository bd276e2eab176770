"""uvicorn's HTTP protocol with timeouts for clients that send a request's head slowly or do not
read the response, behind balancers that speak the PROXY protocol. `control.asgi_middleware` limits
the wait for a body."""

import asyncio
import struct
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.contract.client_address import Network, UnknownProxy, client_address, is_in
from serving.contract.proxy_protocol import (
    PROXY_HEADER_SECONDS,
    NotProxied,
    begins_with_proxy_header,
    read_proxy_header,
)

log = structlog.get_logger(__name__)

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


@dataclass(frozen=True, slots=True)
class ProxiedConnections:
    """The connections that begin with a PROXY header: those from some networks."""

    networks: tuple[Network, ...] = ()
    scheme: str = "http"
    """The scheme of requests on them. The header tells only the client; a balancer in front of a
    console with an https URL is where TLS ends."""


NOT_PROXIED = ProxiedConnections()


class DeadlineProtocol(HttpToolsProtocol):
    """Disconnects slow clients, and knows the client behind a balancer that names it first."""

    _proxy_header: bytes | None = None
    """The part of the PROXY header that has arrived; None if none is to come."""
    _has_received = False
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _write_timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        proxied: ProxiedConnections,
        unknown_proxy: UnknownProxy,
        *arguments: Any,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._proxied = proxied
        self._unknown_proxy = unknown_proxy

    def connection_made(self, transport: Any) -> None:
        """Start the timeout of the first head, or of the PROXY header before it."""
        super().connection_made(transport)
        peer = client_address(self.client[0]) if self.client else None
        if is_in(peer, self._proxied.networks):
            self._proxy_header = b""
            self.scheme = self._proxied.scheme  # type: ignore[assignment]
            self._start_head_timer(PROXY_HEADER_SECONDS)
        else:
            self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; after a response they begin the next head."""
        if self._proxy_header is not None:
            data = self._take_proxy_header(self._proxy_header + data)
            if not data:
                return
        if not self._has_received:
            self._has_received = True
            self._watch_for_proxy(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(TOO_LARGE)
                self.transport.close()

    def _take_proxy_header(self, data: bytes) -> bytes:
        """Learn the client from the PROXY header and return the bytes after it; none while it is
        incomplete, or if the connection begins with something else, which resets it."""
        try:
            header = read_proxy_header(data)
        except NotProxied:
            self._reset()
            return b""
        if header is None:
            self._proxy_header = data
            return b""
        self._proxy_header = None
        self.client = header.client or self.client
        self._stop_head_timer()
        self._start_head_timer()
        return data[header.size :]

    def _watch_for_proxy(self, data: bytes) -> None:
        if self._unknown_proxy.is_watching and begins_with_proxy_header(data):
            peer = self.client[0] if self.client else "a socket"
            words = self._unknown_proxy.notice(peer, "A PROXY header")
            log.warning("unknown_load_balancer", peer=peer, advice=words)

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

    def _start_head_timer(self, seconds: float | None = None) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(seconds or HEAD_SECONDS, self._reset)

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
