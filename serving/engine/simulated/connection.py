"""HTTP/1.1 on a bare asyncio protocol: cheap enough to stand behind a gateway under benchmark."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools

BODY_BYTES_MAX = 32 * 1024 * 1024
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Connection(asyncio.Protocol):
    """One client connection, one request at a time; `on_request` gets each whole request.

    `on_gone` is set by whoever answers: called once when the client leaves before the end.
    """

    def __init__(self, on_request: "Callable[[Connection], None]") -> None:
        self.on_request = on_request
        self.on_gone: Callable[[], None] | None = None
        self.method = ""
        self.path = ""
        self.body = b""
        self.request_id = ""
        """The client's own id, which like vLLM's the answer's repeats."""
        self._parts: list[bytes] = []
        self._url = b""
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._leave()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def on_message_begin(self) -> None:
        self._url = b""
        self.request_id = ""
        self._parts.clear()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self.request_id = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        if sum(map(len, self._parts)) > BODY_BYTES_MAX:
            self.abort()

    def on_message_complete(self) -> None:
        self.method = self._parser.get_method().decode()
        self.path = self._url.partition(b"?")[0].decode(errors="replace")
        self.body = b"".join(self._parts)
        self.on_request(self)

    def reply(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a whole answer."""
        self.on_gone = None
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nserver: uvicorn\r\n"
            f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._write(head.encode() + body)

    def open_stream(self) -> None:
        """Send the head of a stream of server-sent events."""
        self._write(_STREAM_HEAD)

    def send(self, data: bytes) -> None:
        """Send a part of the stream."""
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def close_stream(self) -> None:
        """End the stream; the connection stays for the next request."""
        self.on_gone = None
        self._write(b"0\r\n\r\n")

    def abort(self) -> None:
        """Drop the connection without a word."""
        self.on_gone = None
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _leave(self) -> None:
        if self.on_gone is not None:
            gone, self.on_gone = self.on_gone, None
            gone()
