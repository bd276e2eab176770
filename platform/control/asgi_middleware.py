"""What stands between the HTTP server and Django: the client's address behind trusted proxies,
limits on request bodies, and a handler that holds no database connection while a client reads."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http.response import HttpResponseBase

from control.db.pools import give_back_connections
from control.error_pages import error_body
from serving.contract.client_address import Address, Network, forwarded_address, is_in
from serving.contract.client_address import client_address as parse_address

SCHEMES = {b"http": "http", b"https": "https"}
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
BytesMax = Callable[[dict[str, Any]], int]
"""How many bytes the body of a request (an ASGI scope) may have."""
BODY_SECONDS = 30.0
"""From the end of the head to the end of the body."""
UNREAD_BYTES_MAX = 4 * 2**20
UNREAD_SECONDS = 5.0
"""What of a refused body is taken in and thrown away: a client that writes all of it before it
reads would else find its connection reset in place of the answer."""


class TrustedProxies:
    """An ASGI application whose requests say where their clients are. What a request says of that
    (`X-Forwarded-For`, and `-Proto` of the scheme) counts where it comes from a trusted proxy."""

    def __init__(self, application: Any, networks: Iterable[Network]) -> None:
        self._application = application
        self._networks = tuple(networks)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request."""
        peer = scope.get("client")
        if peer is not None and (address := parse_address(peer[0])) is not None:
            scope["client"] = (str(address), peer[1])
            if is_in(address, self._networks):
                self._believe(scope, address)
        await self._application(scope, receive, send)

    def _believe(self, scope: dict[str, Any], proxy: Address) -> None:
        told = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        schemes = [v.strip() for name, v in scope["headers"] if name == b"x-forwarded-proto"]
        if schemes and schemes[-1] in SCHEMES:
            scope["scheme"] = SCHEMES[schemes[-1]]
        forwarded = [value.decode("latin-1") for value in told]
        client = forwarded_address(str(proxy), forwarded, self._networks)
        if client not in (None, proxy):  # a proxy may name nobody, or nonsense
            scope["client"] = (str(client), 0)


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def limit_bodies(application: Application, bytes_max: BytesMax) -> Application:
    """Return the application behind a bound on bodies: 413 where one is larger, 408 where it does
    not come in time."""

    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body, headers = _Body(receive, bytes_max(scope)), dict(scope["headers"])
        try:
            body.check_announced(headers)
            await application(scope, body.receive, send)
        except _Refused as refused:
            # Whoever expects "100 Continue" sends nothing before the answer.
            if refused.status == 413 and b"expect" not in headers:
                await body.throw_away()
            await _answer_refused(scope, send, refused)

    return respond


class _Body:
    """The body of one request, on its way to the application."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._bytes_max = bytes_max
        self._bytes = 0
        self._is_whole = False
        self._until = asyncio.get_running_loop().time() + BODY_SECONDS

    def check_announced(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a body by its content-length. The server checks that it is a number."""
        announced = int(headers.get(b"content-length", b"0"))
        if announced > self._bytes_max:
            raise self._too_large(f"The body has {announced:,} bytes")

    async def receive(self) -> Mapping[str, Any]:
        """Return the next part. Raises what ends the request where it is too large or late."""
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            words = f"The body did not arrive within {BODY_SECONDS:g} seconds. Send it again."
            raise _Refused(408, "request_timeout", words) from None
        self._bytes += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._bytes > self._bytes_max:
            raise self._too_large("The body is larger than that")
        return message

    async def throw_away(self) -> None:
        """Take in some of what is left."""
        unread = 0
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                while not self._is_whole and unread < UNREAD_BYTES_MAX:
                    message = await self._receive()
                    unread += len(message.get("body", b""))
                    self._is_whole = not message.get("more_body", False)
        except TimeoutError:
            return

    def _too_large(self, found: str) -> _Refused:
        words = f"This address takes a body of at most {self._bytes_max:,} bytes. {found}."
        return _Refused(413, "request_too_large", words)


async def _answer_refused(scope: dict[str, Any], send: Send, refused: _Refused) -> None:
    is_json = scope["path"].startswith(("/api/", "/internal/", "/scim/"))
    body = refused.message.encode()
    if is_json:
        told = error_body(refused.message, "invalid_request_error", code=refused.code)
        body = json.dumps(told).encode()
    headers = [
        (b"content-type", b"application/json" if is_json else b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class ControlHandler(ASGIHandler):
    """Gives the database connection back before a response is written: else a client that does not
    read would hold one of the pool's."""

    async def send_response(self, response: HttpResponseBase, send: Any) -> None:
        """Give back what the views left open in the request's thread, then write."""
        await sync_to_async(give_back_connections, thread_sensitive=True)()
        await super().send_response(response, send)
