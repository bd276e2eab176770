"""ASGI middleware between the HTTP server and Django: the client's address behind trusted proxies,
limits on request bodies, and a handler that holds no database connection while a client reads."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import structlog
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http.response import HttpResponseBase

from control.db.connection import give_back_connections
from control.error_pages import error_body
from serving.contract.client_address import (
    Address,
    Network,
    UnknownProxy,
    forwarded_address,
    is_in,
)
from serving.contract.client_address import client_address as parse_address

log = structlog.get_logger(__name__)

SCHEMES = {b"http": "http", b"https": "https"}
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
BytesMax = Callable[[dict[str, Any]], int]
"""Returns the largest allowed body of a request (an ASGI scope)."""
BODY_SECONDS = 30.0
"""From the end of the head to the end of the body."""
UNREAD_BYTES_MAX = 4 * 2**20
UNREAD_SECONDS = 5.0
"""The part of a rejected body that is read and discarded: otherwise a client that writes all of it
before it reads would get a connection reset instead of the response."""


class TrustedProxies:
    """Sets the client's address and scheme of each request. `X-Forwarded-For` and `-Proto` count
    only if the request comes from a trusted proxy."""

    def __init__(
        self, application: Any, networks: Iterable[Network], unknown_proxy: UnknownProxy
    ) -> None:
        self._application = application
        self._networks = tuple(networks)
        self._unknown_proxy = unknown_proxy

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on with its client's address."""
        peer = scope.get("client")
        if peer is not None and (address := parse_address(peer[0])) is not None:
            scope["client"] = (str(address), peer[1])
            if is_in(address, self._networks):
                self._apply_forwarded(scope, address)
            elif self._unknown_proxy.is_watching:
                self._watch_for_proxy(scope, address)
        await self._application(scope, receive, send)

    def _watch_for_proxy(self, scope: dict[str, Any], peer: Address) -> None:
        if any(name == b"x-forwarded-for" for name, _ in scope["headers"]):
            words = self._unknown_proxy.notice(str(peer), "X-Forwarded-For")
            log.warning("unknown_load_balancer", peer=str(peer), advice=words)

    def _apply_forwarded(self, scope: dict[str, Any], proxy: Address) -> None:
        addresses = [
            value.decode("latin-1")
            for name, value in scope["headers"]
            if name == b"x-forwarded-for"
        ]
        schemes = [v.strip() for name, v in scope["headers"] if name == b"x-forwarded-proto"]
        if schemes and schemes[-1] in SCHEMES:
            scope["scheme"] = SCHEMES[schemes[-1]]
        client = forwarded_address(str(proxy), addresses, self._networks)
        if client not in (None, proxy):  # a proxy may send no address, or an invalid one
            scope["client"] = (str(client), 0)


class _BodyRejected(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def limit_bodies(application: Application, bytes_max: BytesMax) -> Application:
    """Return the application with limits on bodies: 413 if one is too large, 408 if it does not
    arrive in time."""

    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body, headers = _Body(receive, bytes_max(scope)), dict(scope["headers"])
        try:
            body.check_announced(headers)
            await application(scope, body.receive, send)
        except _BodyRejected as error:
            # A client that expects "100 Continue" sends no body before the response.
            if error.status == 413 and b"expect" not in headers:
                await body.discard()
            await _send_error(scope, send, error)

    return respond


class _Body:
    """The body of one request, with its limits."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._bytes_max = bytes_max
        self._bytes = 0
        self._is_complete = False
        self._until = asyncio.get_running_loop().time() + BODY_SECONDS

    def check_announced(self, headers: Mapping[bytes, bytes]) -> None:
        """Reject a body by its content-length. The server checks that it is a number."""
        announced = int(headers.get(b"content-length", b"0"))
        if announced > self._bytes_max:
            raise self._too_large(f"The body has {announced:,} bytes")

    async def receive(self) -> Mapping[str, Any]:
        """Return the next message. Raises _BodyRejected if the body is too large or late."""
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            words = f"The body did not arrive within {BODY_SECONDS:g} seconds. Send it again."
            raise _BodyRejected(408, "request_timeout", words) from None
        self._bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._bytes > self._bytes_max:
            raise self._too_large("The body is larger than that")
        return message

    async def discard(self) -> None:
        """Read and drop the rest of the body, within limits."""
        unread = 0
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                while not self._is_complete and unread < UNREAD_BYTES_MAX:
                    message = await self._receive()
                    unread += len(message.get("body", b""))
                    self._is_complete = not message.get("more_body", False)
        except TimeoutError:
            return

    def _too_large(self, found: str) -> _BodyRejected:
        words = f"This address takes a body of at most {self._bytes_max:,} bytes. {found}."
        return _BodyRejected(413, "request_too_large", words)


async def _send_error(scope: dict[str, Any], send: Send, error: _BodyRejected) -> None:
    is_json = scope["path"].startswith(("/api/", "/internal/", "/scim/"))
    body = error.message.encode()
    if is_json:
        document = error_body(error.message, "invalid_request_error", code=error.code)
        body = json.dumps(document).encode()
    headers = [
        (b"content-type", b"application/json" if is_json else b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class ControlHandler(ASGIHandler):
    """Gives the database connection back before a response is written: otherwise a client that does
    not read would hold a connection of the pool."""

    async def send_response(self, response: HttpResponseBase, send: Any) -> None:
        """Give back the connections of the request's thread, then write."""
        await sync_to_async(give_back_connections, thread_sensitive=True)()
        await super().send_response(response, send)
