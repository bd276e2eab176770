"""Lets listed routes through to the engine, for those who show a token, and nothing else.

The head of a request is read, judged and written anew from a list of headers; its body and the
engine's answer pass as they come. A request's target must equal a listed path byte for byte, and
its length must be stated, so that node and engine cannot read a request differently.
"""

import asyncio
import hmac
from collections.abc import Sequence
from http import HTTPStatus
from typing import NoReturn, cast

import httptools

from serving.contract.node import RouteGrant
from serving.silent_peers import bound_silence

HEAD_BYTES_MAX = 32 * 1024
HEAD_SECONDS = 10.0
"""For a new connection to send the head of its first request."""
IDLE_SECONDS = 75.0
"""Between two requests: longer than gateways keep idle connections."""
UNACKNOWLEDGED_SECONDS = 60
"""Longer than a gateway bears a client that reads nothing."""
CONNECT_SECONDS = 5.0
"""To the engine, on loopback."""
SEPARATORS = len(b": \r\n")
LENGTH_DIGITS_MAX = 12
BEARER = b"Bearer "
PASSED_ON = frozenset(
    {b"accept", b"accept-encoding", b"content-type", b"traceparent", b"tracestate", b"x-request-id"}
)
"""The headers that the engine is told, beside the length of the body."""
REFUSED_HEADERS = {
    b"transfer-encoding": HTTPStatus.LENGTH_REQUIRED,
    b"upgrade": HTTPStatus.BAD_REQUEST,
    b"expect": HTTPStatus.EXPECTATION_FAILED,
}

Route = tuple[bytes, bytes]
"""A method and a path."""


class RequestRefused(Exception):
    """The node answers the request itself, with this status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class EngineProxy:
    """The part that all connections share: the engine's loopback port, the grants, and a bound."""

    def __init__(
        self, engine_port: int, grants: Sequence[RouteGrant], *, connections_max: int
    ) -> None:
        self.engine_port = engine_port
        self.connections: set[ProxiedConnection] = set()
        self.strangers: dict[ProxiedConnection, None] = {}
        """The connections that have shown no token yet, oldest first."""
        self.connections_max = connections_max
        self._host = b"host: 127.0.0.1:%d\r\n" % engine_port
        self._grants = [
            (grant.token.encode(), frozenset(map(_route, grant.routes))) for grant in grants
        ]
        self._routes = frozenset[Route]().union(*(routes for _, routes in self._grants))

    def judge(self, authorization: bytes, route: Route) -> None:
        """Raise RequestRefused unless the token admits to the route; every token is compared."""
        shown = authorization.removeprefix(BEARER)
        found = [routes for token, routes in self._grants if hmac.compare_digest(token, shown)]
        if not found or not authorization.startswith(BEARER):
            raise RequestRefused(HTTPStatus.UNAUTHORIZED)
        if not any(route in routes for routes in found):
            is_known = route in self._routes
            raise RequestRefused(HTTPStatus.FORBIDDEN if is_known else HTTPStatus.NOT_FOUND)

    def make_room(self) -> bool:
        """Tell whether one more may connect; the oldest stranger makes way for it."""
        if len(self.connections) < self.connections_max:
            return True
        if not self.strangers:
            return False
        next(iter(self.strangers)).abort()
        return True

    def forget(self, connection: "ProxiedConnection") -> None:
        """Count a connection no more."""
        self.connections.discard(connection)
        self.strangers.pop(connection, None)

    def head(self, route: Route, headers: Sequence[tuple[bytes, bytes]], length: int) -> bytes:
        """Return the head that the engine gets."""
        method, path = route
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        if length or method == b"POST":
            lines += b"content-length: %d\r\n" % length
        return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, path, self._host, lines)


def _route(route: tuple[str, str]) -> Route:
    return route[0].encode(), route[1].encode()


class PausableProtocol(asyncio.Protocol):
    """One side of an exchange, which reads no more while the other side is behind."""

    _transport: asyncio.Transport

    def pause(self) -> None:
        """Read nothing for now: the other side takes less than is sent."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on: the other side took what it was sent."""
        if not self._transport.is_closing():
            self._transport.resume_reading()


class ProxiedConnection(PausableProtocol):
    """One client, one request at a time, over one connection to the engine that it keeps.

    Whatever breaks the exchange closes both: the client then sees what it would see of the engine.
    """

    def __init__(self, proxy: EngineProxy) -> None:
        self.is_closed = False
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._engine: EngineConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: HTTPStatus | None = None
        self.is_engaged = False
        """Whether a request is under way, from its head to the end of its answer."""
        self._is_sent = False
        """Whether the request was received to its end."""
        self._may_stay = False
        self._is_blocked = False
        """Whether the client takes less than the engine sends."""
        self._unsent: list[bytes] = []
        """Pieces of a request that came before the engine was connected."""
        self._clear()

    def _clear(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._authorization = b""
        self._length: int | None = None
        self._headless_bytes = self._head_bytes = 0
        """Bytes that came without a whole head in them, and those that headers took."""
        self._has_head = False

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the client in, if there is room. No status of 500 or above says that there is none:
        by those the fleet tells that an engine is dead."""
        self._transport = cast(asyncio.Transport, transport)
        if not self._proxy.make_room():
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS)
            return
        self._proxy.connections.add(self)
        self._proxy.strangers[self] = None
        bound_silence(transport.get_extra_info("socket"), UNACKNOWLEDGED_SECONDS)
        self._timer = self._loop.call_later(HEAD_SECONDS, self.close)

    def connection_lost(self, error: Exception | None) -> None:
        """End the engine's work too: nobody waits for it any more."""
        self.is_closed = True
        self._proxy.forget(self)
        self._stop_timer()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        self._parser = None  # type: ignore[assignment]  # the two hold each other

    def data_received(self, data: bytes) -> None:
        """Parse what came; the parser calls the methods below."""
        if self.is_closed:
            return
        if not self._has_head:
            self._headless_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(self._refusal or HTTPStatus.BAD_REQUEST)
            return
        if not self._has_head and self._headless_bytes > HEAD_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def pause_writing(self) -> None:
        """The client is behind: read no more of the engine."""
        self._is_blocked = True
        if self._engine is not None:
            self._engine.pause()

    def resume_writing(self) -> None:
        """The client took what it was sent."""
        self._is_blocked = False
        if self._engine is not None:
            self._engine.resume()

    # httptools calls these. An error raised in one ends the parsing.

    def on_message_begin(self) -> None:
        """Refuse a request that comes before the last one was answered."""
        if self.is_engaged:
            self._raise(HTTPStatus.BAD_REQUEST)

    def on_url(self, url: bytes) -> None:
        """Keep a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header that the engine is told, and judge those that frame the request."""
        self._head_bytes += len(name) + len(value) + SEPARATORS
        if self._head_bytes > HEAD_BYTES_MAX or self._has_head:
            self._raise(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        lowered = name.lower()
        if lowered in PASSED_ON:
            self._headers.append((lowered, value))
        elif lowered == b"authorization":
            self._authorization = b"" if self._authorization else value
        elif lowered == b"content-length":
            if self._length is not None or not is_length(value):
                self._raise(HTTPStatus.BAD_REQUEST)
            self._length = int(value)
        elif lowered in REFUSED_HEADERS:
            self._raise(REFUSED_HEADERS[lowered])

    def on_headers_complete(self) -> None:
        """Judge the request, and begin to pass it on."""
        self._has_head = True
        method = self._parser.get_method()
        if self._parser.get_http_version() != "1.1":
            self._raise(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        route = method, self._target
        try:
            self._proxy.judge(self._authorization, route)
        except RequestRefused as refused:
            self._raise(refused.status)
        self._proxy.strangers.pop(self, None)
        if self._length is None and method == b"POST":
            self._raise(HTTPStatus.LENGTH_REQUIRED)
        if self._length and method != b"POST":
            self._raise(HTTPStatus.BAD_REQUEST)
        self._stop_timer()
        self.is_engaged = True
        self._is_sent = False
        self._send(self._proxy.head(route, self._headers, self._length or 0))

    def on_body(self, data: bytes) -> None:
        """Pass a part of the body on."""
        self._send(data)

    def on_message_complete(self) -> None:
        """Note the end of the request."""
        self._is_sent = True
        self._may_stay = self._parser.should_keep_alive()
        self._clear()

    # The engine's side.

    def answered(self, *, stays: bool) -> None:
        """The answer is complete: wait for the next request, if both sides may stay."""
        self.is_engaged = False
        if not (stays and self._is_sent and self._may_stay):
            self.close()
            return
        self._timer = self._loop.call_later(IDLE_SECONDS, self.close)

    def write(self, data: bytes) -> None:
        """Pass a part of the answer on."""
        self._transport.write(data)

    def engine_lost(self) -> None:
        """The engine closed: what it sent before still reaches the client."""
        self._engine = None
        if self.is_engaged:
            self.close()

    def close(self) -> None:
        """Close once what was written is sent."""
        if not self.is_closed:
            self.is_closed = True
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.is_closed = True
        self._proxy.forget(self)
        self._transport.abort()

    def _send(self, data: bytes) -> None:
        if self._engine is not None:
            self._engine.write(data)
            return
        self._unsent.append(data)
        if self._connecting is None:
            # One read of the client's at most waits for it.
            self.pause()
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, engine = await self._loop.create_connection(
                    lambda: EngineConnection(self), "127.0.0.1", self._proxy.engine_port
                )
        except (OSError, TimeoutError):
            self.close()
            return
        self._connecting = None
        if self.is_closed:
            engine.close()
            return
        self._engine = engine
        if self._is_blocked:
            engine.pause()
        unsent, self._unsent = self._unsent, []
        self.resume()
        engine.write(b"".join(unsent))

    def _raise(self, status: HTTPStatus) -> NoReturn:
        """Have the parser stop; it hides what a callback raises behind an error of its own."""
        self._refusal = status
        raise RequestRefused(status)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer for the engine, unless its own answer has begun, and close."""
        if not self.is_engaged and not self.is_closed:
            line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            self._transport.write(line.encode() + b"content-length: 0\r\nconnection: close\r\n\r\n")
            self.close()
            return
        self.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def is_length(value: bytes) -> bool:
    """Tell whether a header states a length as every parser reads it."""
    return value.isdigit() and len(value) <= LENGTH_DIGITS_MAX


class EngineConnection(PausableProtocol):
    """The connection that a client's requests go to the engine by; parses answers for their end."""

    def __init__(self, client: ProxiedConnection) -> None:
        self._client: ProxiedConnection | None = client
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._is_complete = True
        """Whether no answer is expected."""
        self._stays = False

    def write(self, data: bytes) -> None:
        """Send a part of a request."""
        self._is_complete = False
        self._transport.write(data)

    def close(self) -> None:
        """Close at once: an engine at work hears of it and stops."""
        self._client = None
        self._transport.abort()

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the client's side."""
        client, self._client = self._client, None
        self._parser = None  # type: ignore[assignment]  # the two hold each other
        if client is not None:
            client.engine_lost()

    def data_received(self, data: bytes) -> None:
        """Pass a part of the answer on, unless it is none, or nobody asked for it."""
        client = self._client
        if client is None:
            return
        try:
            if self._is_complete:
                raise httptools.HttpParserError
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            client.abort()
            return
        client.write(data)
        if self._is_complete:
            self._status = 0
            client.answered(stays=self._stays)

    def pause_writing(self) -> None:
        """The engine is behind."""
        if self._client is not None:
            self._client.pause()

    def resume_writing(self) -> None:
        """The engine took what it was sent."""
        if self._client is not None:
            self._client.resume()

    # httptools calls these.

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self._is_complete:
            raise httptools.HttpParserError

    def on_headers_complete(self) -> None:
        """Learn the status."""
        self._status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        """Note the end of the answer, unless it was only said ahead of it."""
        if self._status >= HTTPStatus.OK:
            self._is_complete = True
            self._stays = self._parser.should_keep_alive()
