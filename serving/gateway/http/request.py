"""A client's request: its head, its body within bounds, and the memory that bodies hold."""

import asyncio
from collections.abc import Sequence

from serving.contract.client_address import Address, Network, forwarded_address
from serving.gateway.errors import (
    BadRequest,
    Headers,
    HeadersTooLarge,
    PayloadTooLarge,
    ServiceUnavailable,
    UnsupportedMediaType,
)
from serving.gateway.http.response import Exchange
from serving.pool.overload import Holder, SharedCapacity

HEADER_COUNT_MAX = 64
HEADER_BYTES_MAX = 16 * 1024
BODY_SECONDS_MAX = 30.0
BODIES_BYTES_MAX = 512 * 1024 * 1024
"""Of all requests under way."""
LABEL_CHARACTERS_MAX = 128
DIGITS_MAX = 18
FRAMING = (b"content-length", b"transfer-encoding")


def announces_body(headers: Headers) -> bool:
    """Tell whether a body follows the headers; one of length 0 is none."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" \t0"))
        for name, value in headers
    )


class BodyReservation:
    """The bytes of one body, and of an answer that is given again, within the memory for all such
    bytes."""

    __slots__ = ("_holder", "_room", "_size")

    def __init__(self, room: SharedCapacity, holder: Holder) -> None:
        self._room = room
        self._holder = holder
        self._size = 0

    def check(self, size: int) -> None:
        """Raise ServiceUnavailable when a body of this length would find no room."""
        if not self._room.fits(self._holder, size - self._size):
            message = "Too many large requests are under way. Please try again."
            raise ServiceUnavailable(message, code="server_is_overloaded")

    def grow(self, size: int) -> None:
        """Hold so many bytes in all. Raises ServiceUnavailable."""
        self.check(size)
        self._room.add(self._holder, size - self._size)
        self._size = size

    def add(self, size: int) -> None:
        """Hold so many bytes more. Raises ServiceUnavailable."""
        self.grow(self._size + size)

    def release(self) -> None:
        """Hold nothing any more."""
        self._room.add(self._holder, -self._size)
        self._size = 0


class HttpRequest:
    """What a client sent."""

    def __init__(self, exchange: Exchange) -> None:
        self.method = exchange.method
        # A trailing slash is the same route.
        self.path = exchange.path.rstrip("/") or "/"
        self.peer = exchange.peer
        """The address at the other end of the connection: a client's, or a balancer's."""
        self._raw_headers = exchange.headers
        # Of a header sent twice the first counts.
        self._headers = dict(reversed(self._raw_headers))
        self.has_origin = b"origin" in self._headers
        """Whether a page of another site asks."""
        self.client_request_id = self._client_label()
        self._exchange = exchange
        self._held: BodyReservation | None = None

    def check_headers(self) -> None:
        """Raise HeadersTooLarge when there are too many, or too long ones."""
        size = sum([len(name) + len(value) for name, value in self._raw_headers])
        if len(self._raw_headers) > HEADER_COUNT_MAX or size > HEADER_BYTES_MAX:
            raise HeadersTooLarge("Your request has too many or too large headers.")

    def header(self, name: bytes) -> str:
        """Return a header's value, the first if there are several, or nothing."""
        value = self._headers.get(name)
        return "" if value is None else value.decode("latin-1")

    def has_header(self, name: bytes) -> bool:
        """Tell whether a header was sent, be it empty."""
        return name in self._headers

    @property
    def authorization(self) -> str:
        """The key as `Bearer …`, be it in the header of Anthropic's clients."""
        return self.header(b"authorization") or f"Bearer {self.header(b'x-api-key')}"

    def client_address(self, trusted_proxies: Sequence[Network]) -> Address | None:
        """Return whose request it is, by the word of proxies that are trusted; None where nobody
        can tell."""
        said = [value for name, value in self._raw_headers if name == b"x-forwarded-for"]
        forwarded = [value.decode("latin-1") for value in said]
        return forwarded_address(self.peer, forwarded, trusted_proxies)

    def _client_label(self) -> str | None:
        """Return the client's own id: a label, cut to size, never a key."""
        headers = self._headers
        given = headers.get(b"x-client-request-id") or headers.get(b"x-request-id")
        if not given:
            return None
        label = given.decode("latin-1")
        printable = "".join(letter for letter in label if letter.isprintable())
        return printable[:LABEL_CHARACTERS_MAX] or None

    async def read_body(
        self, bytes_max: int, held: BodyReservation, *, first_seconds: float
    ) -> list[bytes]:
        """Return the whole body, in pieces, which are `held` until the end.

        Raises UnsupportedMediaType, PayloadTooLarge, ServiceUnavailable where too many bytes are
        held, BadRequest when the body does not come, or ClientDisconnected.
        """
        self._check_media()
        self._held = held
        length = self.header(b"content-length")
        if length.isdecimal() and (len(length) > DIGITS_MAX or int(length) > bytes_max):
            raise PayloadTooLarge(bytes_max)
        if self._exchange.has_whole_body:
            return await self._rest_of_body(await self._exchange.read(), bytes_max, held)
        if length.isdecimal():
            held.check(int(length))
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                async with asyncio.timeout(first_seconds):
                    first = await self._exchange.read()
                return await self._rest_of_body(first, bytes_max, held)
        except TimeoutError:
            raise BadRequest("Your request's body did not arrive in time.") from None

    def hold(self, size: int) -> None:
        """Hold so many bytes more until the end. Raises ServiceUnavailable where too many are
        held."""
        if self._held is None:
            raise RuntimeError("only what answers a body is held")
        self._held.add(size)

    def release_connection(self) -> None:
        """Let the connection be closed to make room for another, before the client has taken the
        answer, and drop what comes of the body: the request has no valid key, or is refused."""
        self._exchange.release_connection()

    def close(self) -> None:
        """Forget what the client sent."""
        if self._held is not None:
            self._held.release()

    def _check_media(self) -> None:
        encoding = self._headers.get(b"content-encoding", b"")
        if encoding and encoding.strip().lower() not in (b"", b"identity"):
            raise UnsupportedMediaType("Compressed bodies are not accepted; send plain JSON.")
        if self._headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
            raise UnsupportedMediaType("Forms are not accepted; send plain JSON.")

    async def _rest_of_body(
        self, first: bytes, bytes_max: int, held: BodyReservation
    ) -> list[bytes]:
        parts, size = [first], len(first)
        held.grow(size)
        while not self._exchange.has_whole_body:
            parts.append(await self._exchange.read())
            size += len(parts[-1])
            if size > bytes_max:
                raise PayloadTooLarge(bytes_max)
            held.grow(size)
        return parts
