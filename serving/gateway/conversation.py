"""One HTTP request and its reply, over bare ASGI."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from serving.gateway.errors import ApiError, BadRequest, Headers, HeadersTooLarge, TooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADER_COUNT_MAX = 64
HEADER_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024
BODY_SECONDS_MAX = 30.0
LABEL_CHARACTERS_MAX = 128
JSON: Headers = [(b"content-type", b"application/json")]


class ClientGone(Exception):
    """The client closed the connection before its request was read."""


class Conversation:
    """What the client sent and what it was told so far; `request_id` is also the event's id."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.started_at = time.perf_counter()
        self.status: int | None = None
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.client_host: str | None = scope["client"][0] if scope.get("client") else None
        self._raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        # Of a header sent twice the first counts.
        self._headers = dict(reversed(self._raw_headers))
        self.client_request_id = self._client_label()
        self._receive = receive
        self._send = send

    @property
    def has_begun(self) -> bool:
        """Whether the client has seen a status."""
        return self.status is not None

    def check_headers(self) -> None:
        """Raise HeadersTooLarge when there are too many, or too long ones."""
        size = sum(len(name) + len(value) for name, value in self._raw_headers)
        if len(self._raw_headers) > HEADER_COUNT_MAX or size > HEADER_BYTES_MAX:
            raise HeadersTooLarge("Your request has too many or too large headers.")

    def header(self, name: bytes) -> str:
        """Return a header's value, the first if there are several, or nothing."""
        value = self._headers.get(name)
        return "" if value is None else value.decode("latin-1")

    def _client_label(self) -> str | None:
        """Return the client's own id: a label, cut to size, never a key."""
        label = self.header(b"x-client-request-id") or self.header(b"x-request-id")
        if not label:
            return None
        printable = "".join(letter for letter in label if letter.isprintable())
        return printable[:LABEL_CHARACTERS_MAX] or None

    async def body(self) -> bytes:
        """Return the whole body. Raises TooLarge, BadRequest when it does not come, ClientGone."""
        length = self.header(b"content-length")
        if length.isdecimal() and int(length) > BODY_BYTES_MAX:
            raise TooLarge(f"Your request is larger than {BODY_BYTES_MAX} bytes.")
        message = await self._receive()
        if not message.get("more_body"):
            return self._part(message)
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                return await self._rest_of_body(message)
        except TimeoutError:
            raise BadRequest("Your request's body did not arrive in time.") from None

    async def _rest_of_body(self, message: MutableMapping[str, Any]) -> bytes:
        parts = [self._part(message)]
        size = len(parts[0])
        while message.get("more_body"):
            message = await self._receive()
            parts.append(self._part(message))
            size += len(parts[-1])
            if size > BODY_BYTES_MAX:
                raise TooLarge(f"Your request is larger than {BODY_BYTES_MAX} bytes.")
        return b"".join(parts)

    @staticmethod
    def _part(message: MutableMapping[str, Any]) -> bytes:
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        return part

    @contextmanager
    def watched(self, on_gone: Callable[[], None]) -> Iterator[None]:
        """Call `on_gone` as soon as the client closes the connection."""
        watch = asyncio.get_running_loop().create_task(self._watch(on_gone))
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self, on_gone: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        on_gone()

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the status and headers; ours are on every reply."""
        self.status = status
        elapsed_ms = int((time.perf_counter() - self.started_at) * 1_000)
        ours: Headers = [
            (b"x-request-id", self.request_id.encode()),
            (b"openai-processing-ms", str(elapsed_ms).encode()),
        ]
        label = self.client_request_id
        if label is not None:
            ours.append((b"x-client-request-id", label.encode("ascii", "replace")))
        await self._send(
            {"type": "http.response.start", "status": status, "headers": headers + ours}
        )

    async def send(self, data: bytes) -> None:
        """Send a piece of the body; waits while the client reads too slowly."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        await self._send({"type": "http.response.body", "body": data})

    async def reply(self, status: int, data: bytes, headers: Headers = JSON) -> None:
        """Send a whole answer."""
        length = (b"content-length", str(len(data)).encode())
        await self.begin(status, [*headers, length])
        await self.finish(data)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error, or end a stream that already began with one."""
        if self.has_begun:
            await self.finish(b"data: " + error.body() + b"\n\n")
        else:
            await self.reply(error.status, error.body(), [*JSON, *error.headers])
