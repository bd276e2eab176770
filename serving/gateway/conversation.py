"""One HTTP request and its reply."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from serving.contract.client_address import Address, Network, forwarded_address
from serving.gateway.auth import Principal
from serving.gateway.dialects.base import Envelope, Renderer
from serving.gateway.dialects.openai.envelope import OpenAIEnvelope
from serving.gateway.errors import (
    JSON,
    ApiError,
    BadRequest,
    Headers,
    HeadersTooLarge,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from serving.gateway.http.body_memory import BodyReservation
from serving.gateway.http.response import CYCLE, Cycle
from serving.gateway.http.write_buffer import (
    PIECE_BYTES,
    ClientTooSlow,
    ResponseWriter,
    WriteBuffer,
    WriteMemory,
    seconds_to_take,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADER_COUNT_MAX = 64
HEADER_BYTES_MAX = 16 * 1024
BODY_SECONDS_MAX = 30.0
LABEL_CHARACTERS_MAX = 128
DIGITS_MAX = 18
OPENAI = OpenAIEnvelope()


def no_headers() -> Headers:
    """Return nothing."""
    return ()


class ClientDisconnected(Exception):
    """The client closed the connection before its request was read, or took no more of its
    answer."""


class Conversation:
    """What the client sent and what it was told so far; `request_id` is also the event's id."""

    def __init__(self, scope: Scope, request_id: str, pending: WriteMemory) -> None:
        self.request_id = request_id
        self.started_at = time.perf_counter()
        self.status: int | None = None
        self.envelope: Envelope = OPENAI
        """In whose language errors and headers are; the application knows better."""
        self.more_headers: Headers = ()
        """That stand on the reply whatever it is."""
        self.limit_headers: Callable[[], Headers] = no_headers
        """How the caller's rate limits stand, asked when the reply begins."""
        self.principal: Principal | None = None
        """Whose key it brought, once that is known."""
        self.variant_id: str | None = None
        """Of the model that it named, once that is known."""
        self.rendering: Renderer | None = None
        """How the answer is told that has begun."""
        self.method: str = scope["method"]
        # A trailing slash is the same route.
        self.path: str = scope["path"].rstrip("/") or "/"
        self.peer: str = scope["client"][0] if scope.get("client") else ""
        """The address at the other end of the connection: a client's, or a balancer's."""
        self._raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        # Of a header sent twice the first counts.
        self._headers = dict(reversed(self._raw_headers))
        self.client_request_id = self._client_label()
        # It has the scope, which is not to keep it.
        self._cycle: Cycle = scope["extensions"].pop(CYCLE)
        self._straight = WriteBuffer(self._cycle, pending)
        self._outgoing: ResponseWriter = self._straight
        self._held: BodyReservation | None = None

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

    def client_address(self, trusted_proxies: Sequence[Network]) -> Address | None:
        """Return whose request it is, by the word of proxies that are trusted; None where nobody
        can tell."""
        said = [value for name, value in self._raw_headers if name == b"x-forwarded-for"]
        forwarded = [value.decode("latin-1") for value in said]
        return forwarded_address(self.peer, forwarded, trusted_proxies)

    def has_header(self, name: bytes) -> bool:
        """Tell whether a header was sent, be it empty."""
        return name in self._headers

    @property
    def authorization(self) -> str:
        """The key as `Bearer …`, be it in the header of Anthropic's clients."""
        return self.header(b"authorization") or f"Bearer {self.header(b'x-api-key')}"

    def _client_label(self) -> str | None:
        """Return the client's own id: a label, cut to size, never a key."""
        label = self.header(b"x-client-request-id") or self.header(b"x-request-id")
        if not label:
            return None
        printable = "".join(letter for letter in label if letter.isprintable())
        return printable[:LABEL_CHARACTERS_MAX] or None

    async def body(
        self, bytes_max: int, held: BodyReservation, *, first_seconds: float
    ) -> list[bytes]:
        """Return the whole body, in pieces, which are `held` until the end.

        Raises UnsupportedMedia, TooLarge, Unavailable where too many bytes are held, BadRequest
        when the body does not come, or ClientGone.
        """
        self._check_media()
        self._held = held
        length = self.header(b"content-length")
        if length.isdecimal():
            if len(length) > DIGITS_MAX or int(length) > bytes_max:
                raise PayloadTooLarge(bytes_max)
            held.check(int(length))
        if not self._cycle.more_body:
            return await self._rest_of_body(await self._cycle.receive(), bytes_max, held)
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                async with asyncio.timeout(first_seconds):
                    message = await self._cycle.receive()
                return await self._rest_of_body(message, bytes_max, held)
        except TimeoutError:
            raise BadRequest("Your request's body did not arrive in time.") from None

    def hold(self, size: int) -> None:
        """Hold so many bytes more until the end. Raises Unavailable where too many are held."""
        if self._held is None:
            raise RuntimeError("only what answers a body is held")
        self._held.add(size)

    def _check_media(self) -> None:
        if self.header(b"content-encoding").strip().lower() not in ("", "identity"):
            raise UnsupportedMediaType("Compressed bodies are not accepted; send plain JSON.")
        if self.header(b"content-type").lower().startswith("multipart/"):
            raise UnsupportedMediaType("Forms are not accepted; send plain JSON.")

    async def _rest_of_body(
        self, message: Any, bytes_max: int, held: BodyReservation
    ) -> list[bytes]:
        parts = [self._part(message)]
        size = len(parts[0])
        held.grow(size)
        while message.get("more_body"):
            message = await self._cycle.receive()
            parts.append(self._part(message))
            size += len(parts[-1])
            if size > bytes_max:
                raise PayloadTooLarge(bytes_max)
            held.grow(size)
        return parts

    @staticmethod
    def _part(message: MutableMapping[str, Any]) -> bytes:
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part: bytes = message.get("body", b"")
        return part

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        return self._cycle.is_gone

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Call `on_gone` as soon as the client closes the connection, until `unwatch`."""
        self._cycle.watch(on_gone)

    def unwatch(self) -> None:
        """Let the client go as it likes."""
        self._cycle.watch()

    def send_through(self, wrap: Callable[[ResponseWriter], ResponseWriter]) -> None:
        """Send the body, but for its last piece, through what `wrap` makes of the way out."""
        self._outgoing = wrap(self._outgoing)

    def begin(self, status: int, headers: Headers) -> None:
        """Answer with a status and headers; ours are on every reply."""
        self.status = status
        elapsed_ms = int((time.perf_counter() - self.started_at) * 1_000)
        ours = [
            *((name, self.request_id.encode()) for name in self.envelope.id_headers),
            (b"openai-processing-ms", str(elapsed_ms).encode()),
        ]
        label = self.client_request_id
        if label is not None:
            ours.append((b"x-client-request-id", label.encode("ascii", "replace")))
        self._cycle.begin(status, [*headers, *self.more_headers, *self.limit_headers(), *ours])

    def send(self, data: bytes) -> None:
        """Send a piece of the body, or keep it for a slow client. Raises ClientStalled."""
        self._outgoing.put(data)

    async def tell(self, data: bytes) -> None:
        """Send what is there already, as fast as the client takes it. Raises ClientGone."""
        try:
            async with asyncio.timeout(seconds_to_take(len(data))):
                for start in range(0, len(data), PIECE_BYTES):
                    await self._outgoing.flush()
                    self._outgoing.put(data[start : start + PIECE_BYTES])
        except (ClientTooSlow, TimeoutError):
            self.cut()
            raise ClientDisconnected from None

    async def finish(self, data: bytes = b"") -> None:
        """Send what is left of the body. Raises ClientGone when it is not taken."""
        try:
            await self._outgoing.flush()
            if len(data) > PIECE_BYTES:
                data = await self._straight.pour(data)
        except ClientTooSlow:
            self.cut()
            raise ClientDisconnected from None
        self._cycle.end(data)

    def cut(self) -> None:
        """Close the connection at once."""
        self._outgoing.cut()

    def close(self) -> None:
        """Forget what the client did not take, and what it sent."""
        self._outgoing.drop()
        if self._held is not None:
            self._held.release()

    async def reply(self, status: int, data: bytes, headers: Headers = JSON) -> None:
        """Send a whole answer."""
        length = (b"content-length", str(len(data)).encode())
        self.begin(status, [*headers, length])
        await self.finish(data)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error, or end a stream that already began with one."""
        if self.has_begun:
            await self._break_off(error)
            return
        status, body = self.envelope.error_reply(error, self.request_id)
        await self.reply(status, body, [*JSON, *error.headers])

    async def _break_off(self, error: ApiError) -> None:
        """End an answer that had begun: a stream in words, a whole one by the connection's end."""
        if self.rendering is None:
            self.cut()
        else:
            await self.finish(self.rendering.error_event(error))
