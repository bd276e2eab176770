"""HTTP from clients: uvicorn's protocol, with bounds on what comes around bodies.

uvicorn parses whatever comes: megabytes of headers, trailers and chunk extensions, heads that never
end. Here the bytes that are no body are counted as they come, and every wait ends.
"""

import asyncio
import functools
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.gateway.connections import Connections, place_of
from serving.gateway.cycle import CYCLE, Cycle, unsent_bytes
from serving.gateway.dialects.openai import error_body
from serving.gateway.errors import HeadersTooLarge

AROUND_BYTES_MAX = 64 * 1024
"""Of what is no body: the address, headers, trailers, the frames of chunks. As much as the body is
long comes on top, so that small chunks are no offence."""
SEND_BYTES = 128 * 1024
"""What the kernel takes ahead of a client: some seconds of the fastest stream."""
HEAD_SECONDS = 15.0
TAIL_SECONDS = 30.0
"""Within which a client takes something of what is left of an answer that ended."""
UNASKED_SECONDS = 0.5
"""For which who has just connected may still ask a gateway that ends."""
NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    b"content-length: 0\r\n\r\n"
)
"""To who connects where too many are connected."""


def bounded(connections: Connections) -> "Callable[..., BoundedProtocol]":
    """Return what uvicorn makes of each connection of a listener."""
    return functools.partial(BoundedProtocol, connections)


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    cycle: Cycle | None  # type: ignore[assignment]

    def __init__(self, lines: Connections, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._lines = lines
        self._is_counted = False
        self._address = ""
        self._around_bytes = 0
        self._body_bytes = 0
        self._piece_body_bytes = 0
        """Of the bytes just received, as far as they are parsed: a message may begin among them."""
        self._has_head = True
        self._is_deaf = False
        """Whether what comes is dropped: the connection closes after the answer under way."""
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close a connection on which nothing is ever asked, and hide no stall in the kernel."""
        super().connection_made(transport)
        self._address = place_of(self.client[0]) if self.client else ""
        self._is_counted = self._lines.enter(self, self._address)
        if not self._is_counted:
            transport.write(NO_ROOM)
            transport.close()
            return
        line = transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, and tell who works for a client that left."""
        self._stop_head_timer()
        if self._is_counted:
            self._lines.leave(self, self._address)
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.lose()

    def data_received(self, data: bytes) -> None:
        """Parse what came, within bounds."""
        if self._is_deaf or not self._is_counted:
            return
        self._piece_body_bytes = 0
        super().data_received(data)
        self._around_bytes += len(data) - self._piece_body_bytes
        if self._around_bytes > AROUND_BYTES_MAX + self._body_bytes:
            self._refuse()
        elif self._waits_for_head and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._around_bytes = self._body_bytes = 0
        self._has_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes after the body is none."""
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer. A request sent ahead of the last one's answer is left unread: while it
        waits, uvicorn would not hear that the client is gone."""
        self._has_head = True
        self._stop_head_timer()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
            self._is_deaf = True
            return
        self._lines.note_busy(self, self._address)
        path = httptools.parse_url(self.url).path.decode("ascii")
        self.scope["http_version"] = self.parser.get_http_version()
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["path"] = unquote(path) if "%" in path else path
        self.cycle = self._new_cycle()
        self.scope["extensions"] = {CYCLE: self.cycle}  # type: ignore[dict-item]
        self._start_asgi_task(self.cycle, self.app)

    def _new_cycle(self) -> Cycle:
        return Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=self._may_stay,
            on_response=self.on_response_complete,
        )

    @property
    def _may_stay(self) -> bool:
        """Whether another request may follow on this connection."""
        is_old, is_wanted = self.scope["http_version"] == "1.0", self.parser.should_keep_alive()
        return is_wanted and not is_old and not self._lines.is_retiring

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        self._piece_body_bytes += len(body)
        if not self._is_deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body."""
        if not self._is_deaf:
            super().on_message_complete()

    @property
    def _waits_for_head(self) -> bool:
        """Whether bytes came, and no whole head among them."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return not self._has_head or (is_answered and self.timeout_keep_alive_task is None)

    def on_response_complete(self) -> None:
        """Go on; what the client has not taken yet is not kept for ever."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._lines.note_idle(self, self._address)
        if self.transport.get_write_buffer_size():
            self._watch_tail(unsent_bytes(self.transport))

    def shutdown(self) -> None:
        """End once nothing is under way. Who has just connected is about to ask, and may."""
        if self.cycle is None:
            self.loop.call_later(UNASKED_SECONDS, self._close_unasked)
        else:
            super().shutdown()

    def _close_unasked(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def close_now(self) -> None:
        """Make room for another."""
        self.transport.abort()

    def _watch_tail(self, left_bytes: int) -> None:
        if left_bytes:
            self.loop.call_later(TAIL_SECONDS, self._check_tail, left_bytes)

    def _check_tail(self, before_bytes: int) -> None:
        left_bytes = unsent_bytes(self.transport)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if left_bytes >= before_bytes and not is_answering:
            self.transport.abort()
        elif not is_answering:
            self._watch_tail(left_bytes)

    def _refuse(self) -> None:
        self._is_deaf = True
        if self.cycle is None or self.cycle.response_complete:
            body = error_body(HeadersTooLarge("Your request has too many or too large headers."))
            head = (
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            )
            self.transport.write(head + body)
            self.transport.close()
        else:
            self.transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
