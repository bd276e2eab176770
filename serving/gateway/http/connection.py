"""HTTP from clients: uvicorn's protocol, with bounds on what comes around bodies.

uvicorn parses whatever comes: megabytes of headers, trailers and chunk extensions, heads that
never end. Here the bytes that are no body are counted as they come, and every wait ends. A
request that asks for another protocol is answered in HTTP/1.1 as if it had not asked (RFC 9110,
7.8): llhttp ends such a message at its head and cannot be resumed, so that what follows goes to
a new parser.
"""

import asyncio
import functools
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from serving.contract.proxy_protocol import (
    PROXY_HEADER_SECONDS,
    NotProxied,
    begins_with_proxy_header,
    read_proxy_header,
)
from serving.gateway.errors import ApiError, BadRequest, HeadersTooLarge
from serving.gateway.http.connection_limits import ConnectionLimits, place_of
from serving.gateway.http.request import HEADER_COUNT_MAX
from serving.gateway.http.response import CYCLE, ResponseCycle, unsent_bytes

log = structlog.get_logger(__name__)


Headers = Sequence[tuple[bytes, bytes]]
FRAMING = (b"content-length", b"transfer-encoding")
RenderError = Callable[[ApiError], tuple[int, bytes]]
"""What is told of a request that is none: the status and the body."""


class Callbacks(Protocol):
    """What a parser calls."""

    def on_message_begin(self) -> None: ...
    def on_url(self, url: bytes) -> None: ...
    def on_header(self, name: bytes, value: bytes) -> None: ...
    def on_headers_complete(self) -> None: ...
    def on_body(self, body: bytes) -> None: ...
    def on_message_complete(self) -> None: ...


def announces_body(headers: Headers) -> bool:
    """Tell whether a body follows the headers; one of length 0 is none."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" \t0"))
        for name, value in headers
    )


def parser_behind_head(
    callbacks: Callbacks, version: str, headers: Headers
) -> httptools.HttpRequestParser:
    """Return a parser for what follows a head: its body, if it has one, and further requests."""
    if not announces_body(headers):
        return _parser(callbacks)
    muted = _MutedHead(callbacks)
    parser = _parser(muted)
    framing = [b"%b: %b\r\n" % field for field in headers if field[0] in FRAMING]
    parser.feed_data(b"POST / HTTP/%b\r\n%b\r\n" % (version.encode(), b"".join(framing)))
    muted.is_muted = False
    return parser


def _parser(callbacks: Callbacks) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(callbacks)
    # As uvicorn has it: whatever follows a last request is left unread, and no offence.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class _MutedHead:
    """Callbacks that do not hear of a head which they know."""

    def __init__(self, callbacks: Callbacks) -> None:
        self.is_muted = True
        self._callbacks = callbacks
        self.on_body = callbacks.on_body
        self.on_message_complete = callbacks.on_message_complete

    def on_message_begin(self) -> None:
        if not self.is_muted:
            self._callbacks.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self.is_muted:
            self._callbacks.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_muted:
            self._callbacks.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self.is_muted:
            self._callbacks.on_headers_complete()


ADDRESS_BYTES_MAX = 4 * 1024
HEAD_BYTES_MAX = 24 * 1024
"""Kept of a head that has not ended: who sends slowly, on many connections, holds no more."""
HEADERS_READ_MAX = 512
"""Of a message, trailers included. Too many are refused in words once the head is whole; beyond
this the rest is not even read."""
AROUND_BYTES_MAX = 32 * 1024
"""Of what is no body: the address, headers, trailers, the frames of chunks. As much as the body is
long comes on top, so that small chunks are no offence."""
SEND_BYTES = 128 * 1024
"""What the kernel takes ahead of a client: some seconds of the fastest stream."""
HEAD_SECONDS = 15.0
TAIL_SECONDS = 30.0
"""Within which a client takes something of what is left of an answer that ended."""
UNASKED_SECONDS = 0.5
"""For which who has just connected may still ask a gateway that ends."""
PARSED_BYTES = 16 * 1024
"""At once: small chunks cost more than their bytes, and are refused before many are read."""
PART_SECONDS = 1.0
"""For which who is refused may still send and read."""
DROPPED_BYTES_MAX = 16 * 1024 * 1024
"""That may come of a body that was refused, or behind what was: as much as a body may have."""
NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    b"content-length: 0\r\n\r\n"
)
"""To who connects where too many are connected."""


def bounded(
    connections: ConnectionLimits, render_error: RenderError
) -> "Callable[..., HttpConnection]":
    """Return what uvicorn makes of each connection of a listener."""
    return functools.partial(HttpConnection, connections, render_error)


class HttpConnection(HttpToolsProtocol):
    """One connection of a client."""

    cycle: ResponseCycle | None  # type: ignore[assignment]

    def __init__(
        self,
        lines: ConnectionLimits,
        render_error: RenderError,
        *arguments: Any,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._render_error = render_error
        self._lines = lines
        self._is_counted = False
        self._address = ""
        self._preamble: bytes | None = None
        """What came of the PROXY header, until there is all of it; None where none is to come."""
        self._around_bytes = 0
        self._body_bytes = 0
        self._piece_body_bytes = 0
        """Of the bytes being parsed: a message may begin among them."""
        self._headers_read = 0
        self._has_head = True
        self._is_deaf = False
        """Whether what comes is dropped: the connection closes after the answer under way."""
        self._is_parting = False
        self._dropped_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        """Until the connection closes, unless a head ends first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close a connection on which nothing is ever asked, and hide no stall in the kernel."""
        super().connection_made(transport)
        if self.client and self._lines.is_proxied(self.client[0]):
            self._preamble = b""
            self._timer = self.loop.call_later(PROXY_HEADER_SECONDS, transport.abort)
        if not self._enter():
            return
        line = transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _enter(self) -> bool:
        """Be counted by the client's address; False, and closed, where there is no room."""
        self._address = place_of(self.client[0]) if self.client else ""
        self._is_counted = self._lines.enter(self, self._address)
        if not self._is_counted:
            self.transport.write(NO_ROOM)
            self.transport.close()
        return self._is_counted

    def _after_preamble(self, data: bytes) -> bytes:
        """Return what came behind the PROXY header, and know from then on whose connection it is.
        Who sends something else instead is closed without a word: it may be HTTP or not."""
        data = (self._preamble or b"") + data
        try:
            header = read_proxy_header(data)
        except NotProxied:
            self._lines.unreadable += 1
            self._is_deaf = True
            self.transport.abort()
            return b""
        if header is None:
            self._preamble = data
            return b""
        self._preamble = None
        self._stop_timer()
        if header.client is not None:
            self._lines.leave(self, self._address)
            self.client = header.client
            if not self._enter():
                return b""
        return data[header.size :]

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, and tell who works for a client that left."""
        self._stop_timer()
        if self._is_counted:
            self._lines.leave(self, self._address)
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.lose()

    def data_received(self, data: bytes) -> None:
        """Parse what came, within bounds."""
        if self._is_deaf or not self._is_counted:
            if self._is_parting:
                self._drop(data)
            return
        if self._preamble is not None and not (data := self._after_preamble(data)):
            return
        if self._lines.unknown_proxy.is_watching and self.cycle is None:
            self._watch_for_proxy(data)
        self._unset_keepalive_if_required()
        view = memoryview(data)
        for start in range(0, len(data), PARSED_BYTES):
            self._parse(view[start : start + PARSED_BYTES])
            if self._is_deaf:
                return
        if self._waits_for_head and self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _watch_for_proxy(self, data: bytes) -> None:
        """Tell the operator of a balancer that says whose connection it is, though nobody reads
        it."""
        if begins_with_proxy_header(data):
            peer = self.client[0] if self.client else "a socket"
            words = self._lines.unknown_proxy.notice(peer, "A PROXY header")
            log.warning("unknown_load_balancer", peer=peer, advice=words)

    def _parse(self, piece: memoryview) -> None:
        self._piece_body_bytes = 0
        try:
            self._feed(piece)
        except httptools.HttpParserError as error:
            self._refuse(_reason(error))
            return
        self._around_bytes += len(piece) - self._piece_body_bytes
        if self._is_too_much:
            self._refuse(HeadersTooLarge("Your request has too many or too large headers."))

    def _feed(self, piece: memoryview) -> None:
        """Have a piece parsed; whoever asks for another protocol is answered in this one."""
        rest = piece
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            if self._is_deaf:
                return
            version = self.parser.get_http_version()
            self.parser = parser_behind_head(self, version, self.headers)

    @property
    def _is_too_much(self) -> bool:
        most = AROUND_BYTES_MAX + self._body_bytes if self._has_head else HEAD_BYTES_MAX
        return self._around_bytes > most

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._around_bytes = self._body_bytes = self._headers_read = self._dropped_bytes = 0
        self._has_head = False

    def on_url(self, url: bytes) -> None:
        """Take a part of the address. Raises HeadersTooLarge."""
        super().on_url(url)
        if len(self.url) > ADDRESS_BYTES_MAX:
            raise HeadersTooLarge("Your request's address is too long.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and one more than are taken; what comes after the body is none.

        Raises HeadersTooLarge, or BadRequest for a body whose end others might see elsewhere.
        """
        self._headers_read += 1
        if self._headers_read > HEADERS_READ_MAX:
            raise HeadersTooLarge("Your request has too many or too large headers.")
        if self._has_head or len(self.headers) > HEADER_COUNT_MAX:
            return
        super().on_header(name, value)
        if self.headers[-1][0] == b"transfer-encoding":
            is_plain = value.strip().lower() == b"chunked"
            if not is_plain or self.parser.get_http_version() != "1.1":
                raise BadRequest("Transfer-Encoding may be 'chunked', in HTTP/1.1, and no more.")

    def on_headers_complete(self) -> None:
        """Begin to answer. A request sent ahead of the last one's answer is left unread: while it
        waits, uvicorn would not hear that the client is gone."""
        self._has_head = True
        self._stop_timer()
        if self.cycle is not None and not self.cycle.response_complete:
            self._hear_no_more()
            return
        self._lines.note_busy(self, self._address)
        path = httptools.parse_url(self.url).path.decode("ascii")
        self.scope["http_version"] = self.parser.get_http_version()
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["path"] = unquote(path) if "%" in path else path
        self.cycle = self._new_cycle()
        self.scope["extensions"] = {CYCLE: self.cycle}  # type: ignore[dict-item]
        self._start_asgi_task(self.cycle, self.app)

    def _new_cycle(self) -> ResponseCycle:
        return ResponseCycle(
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
        if self._is_deaf:
            return
        super().on_body(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._drop(body)

    def on_message_complete(self) -> None:
        """End the body; the parser takes an upgrade for ended whose body is still to come."""
        is_ended = not (self.parser.should_upgrade() and announces_body(self.headers))
        if is_ended and not self._is_deaf:
            super().on_message_complete()

    @property
    def _waits_for_head(self) -> bool:
        """Whether bytes came, and no whole head among them, while nothing is being answered."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and (not self._has_head or self.timeout_keep_alive_task is None)

    def on_response_complete(self) -> None:
        """Go on, or close; what the client has not taken yet is not kept for ever."""
        if self.cycle is not None and not self.cycle.keep_alive:
            self._close_after(self.cycle)
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

    def _hear_no_more(self) -> None:
        """Close after the answer under way."""
        self._is_deaf = True
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _refuse(self, error: ApiError) -> None:
        """Answer what is no request, and close. What was asked before it is answered first."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or not cycle.more_body:
                self._hear_no_more()
                return
            cycle.give_up()
        self._lines.unreadable += 1
        status, body = self._render_error(error)
        head = (
            b"%bconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        )
        self.transport.write(head % (STATUS_LINE[status], len(body)) + body)
        self._part()

    def _close_after(self, answered: ResponseCycle) -> None:
        if answered.more_body:
            self._part()
        else:
            self.transport.close()

    def _part(self) -> None:
        """Close when the client has, or soon: closed with bytes unread, a connection is reset, and
        what the client was told may be lost with it."""
        self._is_deaf = self._is_parting = True
        self._stop_timer()
        self._lines.note_idle(self, self._address)
        self.flow.resume_reading()
        self.transport.write_eof()
        self._timer = self.loop.call_later(PART_SECONDS, self.transport.abort)

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes > DROPPED_BYTES_MAX:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _reason(error: httptools.HttpParserError) -> ApiError:
    """Return what our own part of parsing found, or that it is no HTTP."""
    found = error.__context__
    return found if isinstance(found, ApiError) else BadRequest("Your request is not valid HTTP.")
