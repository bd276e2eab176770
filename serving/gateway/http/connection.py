"""HTTP/1.1 from clients: one connection, on which requests are read within bounds and answered.

A parser takes whatever comes: megabytes of headers, trailers and chunk extensions, heads that never
end. Here the bytes that are no body are counted as they come, and every wait ends. A request that
asks for another protocol is answered in HTTP/1.1 as if it had not asked (RFC 9110, 7.8): llhttp
ends such a message at its head and cannot be resumed, so that what follows goes to a new parser.
"""

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httptools
import structlog

from serving.contract.proxy_protocol import (
    PROXY_HEADER_SECONDS,
    NotProxied,
    begins_with_proxy_header,
    read_proxy_header,
)
from serving.gateway.errors import ApiError, BadRequest, HeadersTooLarge
from serving.gateway.http.connection_limits import ConnectionLimits, place_of
from serving.gateway.http.request import FRAMING, HEADER_COUNT_MAX, announces_body
from serving.gateway.http.response import STATUS_LINES, Exchange, unsent_bytes

log = structlog.get_logger(__name__)


RenderError = Callable[[ApiError], tuple[int, bytes]]
"""What is told of a request that is none: the status and the body."""


def _parser(callbacks: object) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(callbacks)
    # Whatever follows a last request is left unread, and no offence.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


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
UNREAD_BYTES_MAX = 64 * 1024
"""Of a body, beyond which no more is read before these are."""
OLD_VERSIONS = ("0.9", "1.0")
"""They know no `Host`, no chunks and no second request."""
KEEPALIVE_SECONDS = 75.0
"""Longer than clients keep idle connections, so that none writes into a closing one."""
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
REFUSAL = b"%bconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    b"content-length: 0\r\n\r\n"
)
"""To who connects where too many are connected."""


Application = Callable[[Exchange], Coroutine[Any, Any, None]]
"""Starts and ends the answer of an exchange, or aborts it."""


@dataclass(eq=False)
class ServerState:
    """What the connections of one server share."""

    app: Application
    limits: ConnectionLimits
    render_error: RenderError
    connections: set["HttpConnection"] = field(default_factory=set, init=False)
    tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when one of them has ended."""


class HttpConnection(asyncio.Protocol):
    """One connection of a client.

    Bytes come in at `data_received`, which has the parser call `on_...`: a head starts a task of
    the application, and the task's answer ends at `end_exchange`.
    """

    transport: asyncio.Transport

    def __init__(self, server: ServerState) -> None:
        self.peer = ""
        """The address of the client, or of the balancer where that says nothing else."""
        self.exchange: Exchange | None = None
        """The last request: answered, or under way."""
        self.is_read_paused = self.is_write_paused = False
        self._writable = asyncio.Event()
        self._server = server
        self._lines = server.limits
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser = _parser(self)
        self._is_muted = False
        """Whether the parser is told a head that is known already."""
        self._is_counted, self._address = False, ""
        self._preamble: bytes | None = None
        """What came of the PROXY header, until there is all of it; None where none is to come."""
        self._is_deaf = False
        """Whether what comes is dropped: the connection closes after the answer under way."""
        self._is_parting = False
        self._timer: asyncio.TimerHandle | None = None
        """Until the connection closes, unless a head ends first."""
        self._idle_since = self._loop.time()
        self._is_head_timed = False
        """Whether the timer is that of a head which has begun."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._host_count = 0
        self._awaits_continue = False
        self._has_head = True
        self._headers_read = self._around_bytes = self._body_bytes = self._dropped_bytes = 0
        self._piece_body_bytes = 0
        """Of the bytes being parsed: a message may begin among them."""

    # ---- From the first byte to the last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close a connection on which nothing is ever asked, and hide no stall in the kernel."""
        self.transport = transport
        self._server.connections.add(self)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._enter():
            return
        line = transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        if self.peer and self._lines.is_proxied(self.peer):
            self._preamble = b""
            self._set_timer(PROXY_HEADER_SECONDS, transport.abort)
        else:
            self._set_timer(KEEPALIVE_SECONDS, self._check_idle)

    def _enter(self) -> bool:
        """Be counted by the client's address; False, and closed, where there is no room."""
        self._address = place_of(self.peer)
        self._is_counted = self._lines.enter(self, self._address)
        if not self._is_counted:
            self.transport.write(NO_ROOM)
            self.transport.close()
        return self._is_counted

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, and tell who works for a client that left."""
        if self._timer is not None:
            self._timer.cancel()
        self._server.connections.discard(self)
        self._server.ended.set()
        if self._is_counted:
            self._lines.leave(self, self._address)
        del self._parser  # each refers to the other
        self.resume_writing()
        if self.exchange is not None:
            self.exchange.lose()

    def data_received(self, data: bytes) -> None:
        """Parse what came, within bounds."""
        if self._is_deaf or not self._is_counted:
            if self._is_parting:
                self._drop(data)
            return
        if self._preamble is not None and not (data := self._after_preamble(data)):
            return
        if self._lines.unknown_proxy.is_watching and self.exchange is None:
            self._watch_for_proxy(data)
        if len(data) <= PARSED_BYTES:
            self._parse(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), PARSED_BYTES):
                self._parse(view[start : start + PARSED_BYTES])
                if self._is_deaf:
                    return
        is_answering = self.exchange is not None and not self.exchange.is_complete
        if not (is_answering or self._is_head_timed or self._is_deaf):
            self._is_head_timed = True
            self._set_timer(HEAD_SECONDS, self.transport.abort)

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
        self._set_timer(KEEPALIVE_SECONDS, self._check_idle)
        if header.client is not None:
            self._lines.leave(self, self._address)
            self.peer = header.client[0]
            if not self._enter():
                return b""
        return data[header.size :]

    def _watch_for_proxy(self, data: bytes) -> None:
        """Tell the operator of a balancer that says whose connection it is, though nobody reads
        it."""
        if begins_with_proxy_header(data):
            peer = self.peer or "a socket"
            words = self._lines.unknown_proxy.notice(peer, "A PROXY header")
            log.warning("unknown_load_balancer", peer=peer, advice=words)

    # ---- One request

    def _parse(self, piece: bytes | memoryview) -> None:
        """Have a piece parsed; whoever asks for another protocol is answered in this one."""
        self._piece_body_bytes, rest = 0, piece
        try:
            while True:
                try:
                    self._parser.feed_data(rest)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    rest = rest[upgrade.args[0] :]
                if self._is_deaf:
                    break
                self._parser = self._parser_behind_head()
        except httptools.HttpParserError as error:
            ours = error.__context__  # where a callback found what is wrong
            invalid = BadRequest("Your request is not valid HTTP.")
            self._send_error(ours if isinstance(ours, ApiError) else invalid)
            return
        self._around_bytes += len(piece) - self._piece_body_bytes
        most = AROUND_BYTES_MAX + self._body_bytes if self._has_head else HEAD_BYTES_MAX
        if self._around_bytes > most:
            self._send_error(HeadersTooLarge("Your request has too many or too large headers."))

    def _parser_behind_head(self) -> httptools.HttpRequestParser:
        """Return a parser for what follows a head: its body, if it has one, and further requests.
        It is told the head once more, as far as it concerns the body's end."""
        parser = _parser(self)
        if announces_body(self._headers):
            framing = [b"%b: %b\r\n" % field for field in self._headers if field[0] in FRAMING]
            version = self._parser.get_http_version().encode()
            self._is_muted = True
            parser.feed_data(b"POST / HTTP/%b\r\n%b\r\n" % (version, b"".join(framing)))
            self._is_muted = False
        return parser

    def on_message_begin(self) -> None:
        """Begin to count."""
        if self._is_muted:
            return
        self._url, self._headers, self._host_count = b"", [], 0
        self._has_head = self._awaits_continue = False
        self._around_bytes = self._body_bytes = self._headers_read = self._dropped_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the address. Raises HeadersTooLarge."""
        if self._is_muted:
            return
        self._url += url
        if len(self._url) > ADDRESS_BYTES_MAX:
            raise HeadersTooLarge("Your request's address is too long.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and one more than are taken; what comes after the body is none.

        Raises HeadersTooLarge, or BadRequest for a body whose end others might see elsewhere.
        """
        if self._is_muted:
            return
        self._headers_read += 1
        if self._headers_read > HEADERS_READ_MAX:
            raise HeadersTooLarge("Your request has too many or too large headers.")
        if self._has_head:
            return
        name = name.lower()
        if name == b"host":
            self._host_count += 1
        elif name == b"expect":
            self._awaits_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding":
            is_plain = value.strip().lower() == b"chunked"
            if not is_plain or self._parser.get_http_version() != "1.1":
                raise BadRequest("Transfer-Encoding may be 'chunked', in HTTP/1.1, and no more.")
        if len(self._headers) <= HEADER_COUNT_MAX or name in FRAMING:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin to answer. A request sent ahead of the last one's answer is left unread: while it
        waits, nobody would hear that the client is gone. Raises BadRequest."""
        if self._is_muted:
            return
        self._has_head = True
        if self._is_head_timed:
            self._is_head_timed = False
            self._set_timer(KEEPALIVE_SECONDS, self._check_idle)
        if self.exchange is not None and not self.exchange.is_complete:
            self._hear_no_more()
            return
        version = self._parser.get_http_version()
        is_old = version in OLD_VERSIONS
        if self._host_count > 1 or not (self._host_count or is_old):
            raise BadRequest("Your request must have one Host header.")
        # Of an address with a scheme and a host, the path.
        path = httptools.parse_url(self._url).path.decode("ascii")
        may_stay = self._parser.should_keep_alive() and not (is_old or self._lines.is_retiring)
        self.exchange = exchange = Exchange(
            self,
            method=self._parser.get_method().decode("ascii"),
            path=unquote(path) if "%" in path else path,
            is_old=is_old,
            headers=self._headers,
            peer=self.peer,
            keep_alive=may_stay,
            awaits_continue=self._awaits_continue,
        )
        self._lines.note_busy(self, self._address)
        task = self._loop.create_task(self._server.app(exchange))
        self._server.tasks.add(task)
        task.add_done_callback(functools.partial(self._check_ended, exchange))

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        self._piece_body_bytes += len(body)
        if self._is_deaf or self.exchange is None:
            return
        if self.exchange.is_complete or self.exchange.is_released:
            self._drop(body)
            return
        self.exchange.feed(body)
        if self.exchange.unread_bytes > UNREAD_BYTES_MAX and not self.is_read_paused:
            self.is_read_paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """End the body; the parser takes an upgrade for ended whose body is still to come."""
        is_ended = not (self._parser.should_upgrade() and announces_body(self._headers))
        if is_ended and not self._is_deaf and self.exchange is not None:
            self.exchange.end_body()

    def _check_ended(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        """End what the application left unanswered."""
        self._server.tasks.discard(task)
        self._server.ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("request_failed", exc_info=error)
            if not exchange.has_started:
                exchange.start(500, [(b"content-length", b"0"), (b"connection", b"close")])
                exchange.end()
        if not exchange.is_complete:
            self.transport.close()

    def end_exchange(self) -> None:
        """Go on after an answer, or close; what the client has not taken yet is not kept for
        ever."""
        if self.exchange is not None and not self.exchange.keep_alive:
            if self.exchange.has_whole_body:
                self.release()
                self.transport.close()
            else:
                self._part()
        elif not self.transport.is_closing():
            if self.is_read_paused:
                self.resume_reading()
            self._lines.note_idle(self, self._address)
            self._idle_since = self._loop.time()
        if self.transport.get_write_buffer_size():
            self._watch_tail(unsent_bytes(self.transport))

    # ---- Refusals and ends

    def _send_error(self, error: ApiError) -> None:
        """Answer what is no request, and close. What was asked before it is answered first."""
        exchange = self.exchange
        if exchange is not None and not exchange.is_complete:
            if exchange.has_started or exchange.has_whole_body:
                self._hear_no_more()
                return
            exchange.give_up()
        self._lines.unreadable += 1
        status, body = self._server.render_error(error)
        self.transport.write(REFUSAL % (STATUS_LINES[status], len(body), body))
        self._part()

    def _hear_no_more(self) -> None:
        """Close after the answer under way."""
        self._is_deaf = True
        if self.exchange is not None:
            self.exchange.keep_alive = False

    def _part(self) -> None:
        """Close when the client has, or soon: closed with bytes unread, a connection is reset, and
        what the client was told may be lost with it."""
        self._is_deaf = self._is_parting = True
        self._lines.note_idle(self, self._address)
        self.resume_reading()
        self.transport.write_eof()
        self._set_timer(PART_SECONDS, self.transport.abort)

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes > DROPPED_BYTES_MAX:
            self.transport.abort()

    def shutdown(self) -> None:
        """End once nothing is under way. Who has just connected is about to ask, and may."""
        if self.exchange is None:
            self._loop.call_later(UNASKED_SECONDS, self._close_unasked)
        elif self.exchange.is_complete:
            self.transport.close()
        else:
            self.exchange.keep_alive = False

    def _close_unasked(self) -> None:
        if self.exchange is None:
            self.transport.close()

    def release(self) -> None:
        """Be one of those that are closed to make room, as if nothing were asked."""
        if not self.transport.is_closing():
            self._lines.note_idle(self, self._address)

    def close_now(self) -> None:
        """Make room for another."""
        self.transport.abort()

    def _watch_tail(self, left_bytes: int) -> None:
        if left_bytes:
            self._loop.call_later(TAIL_SECONDS, self._check_tail, left_bytes)

    def _check_tail(self, before_bytes: int) -> None:
        left_bytes = unsent_bytes(self.transport)
        is_answering = self.exchange is not None and not self.exchange.is_complete
        if left_bytes >= before_bytes and not is_answering:
            self.transport.abort()
        elif not is_answering:
            self._watch_tail(left_bytes)

    def _check_idle(self) -> None:
        """Close where nothing was asked for long; a timer for each request would cost more."""
        is_answering = self.exchange is not None and not self.exchange.is_complete
        left = self._idle_since + KEEPALIVE_SECONDS - self._loop.time()
        if is_answering or left > 0:
            self._set_timer(KEEPALIVE_SECONDS if is_answering else left, self._check_idle)
        else:
            self.transport.close()

    def _set_timer(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, act)

    def resume_reading(self) -> None:
        """Read on, where a body that nobody read had stopped it."""
        if self.is_read_paused:
            self.is_read_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Hear that the client takes less than it is sent."""
        self.is_write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """Hear that it took it."""
        self.is_write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        """Wait until the client took what it was sent, or is gone."""
        if self.is_write_paused:
            await self._writable.wait()
