"""One request and its answer on a client's connection: uvicorn's, with an ear for hang-ups.

The head of an answer leaves together with the first of its body: a packet and a system call less.
"""

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from serving.gateway.errors import Headers

CYCLE = "penstock.cycle"
"""Under `extensions` in the scope."""
_COUNT = struct.Struct("i")


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Return how much waits to be taken, what the kernel has included: it asks for more only once
    a third of that is gone, which takes a slow client longer than it is given. Of a line that is
    closed nothing waits."""
    waiting = transport.get_write_buffer_size()
    line = transport.get_extra_info("socket")
    if line is not None:
        with suppress(OSError, ValueError):  # the latter where it has no number any more
            told = fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
            waiting += _COUNT.unpack(told)[0]
    return waiting


def _nobody() -> None:
    """Hear of a hang-up while nobody works on an answer."""


class Cycle(RequestResponseCycle):
    """`begin`, then `write` as often as wanted, then `end`; none of them waits for the client."""

    def __init__(self, **made_of: Any) -> None:
        super().__init__(**made_of)
        self._head = b""
        self._on_gone = _nobody

    @property
    def is_blocked(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self.flow.write_paused

    @property
    def unsent_bytes(self) -> int:
        """How much of what was written the client's host has not taken."""
        return unsent_bytes(self.transport)

    async def drain(self) -> None:
        """Wait until the client took what it was sent, or is gone."""
        await self.flow.drain()

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        self.flow.resume_reading()  # the end of a long body may have left it paused
        return self.disconnected

    def watch(self, on_gone: Callable[[], None] = _nobody) -> None:
        """Call this, and nothing else, when the client closes the connection; now if it did."""
        self.flow.resume_reading()  # the end of a long body may have left it paused
        self._on_gone = on_gone
        if self.disconnected:
            on_gone()

    def lose(self) -> None:
        """Hear that the connection is closed."""
        self._on_gone()

    def give_up(self) -> None:
        """Have who works on an answer stop: the client, which is told something else, is gone."""
        self.disconnected = True
        self.message_event.set()

    def abort(self) -> None:
        """Close the connection, whatever it still holds."""
        self.transport.abort()

    def begin(self, status: int, headers: Headers) -> None:
        """Make the head. Raises ValueError when a header would be two."""
        lines = [STATUS_LINE[status]]
        # HTTP/1.0 knows no chunks: there a body without a length ends with the connection.
        self.chunked_encoding = self.scope["http_version"] != "1.0"
        for name, value in (*self.default_headers, *headers):
            if name == b"connection":
                self.keep_alive = False
                continue
            if name == b"content-length":
                self.chunked_encoding = False
            lines.append(b"%b: %b\r\n" % (name, value))
        if self.chunked_encoding:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        self._head = b"".join(lines) + b"\r\n"
        if self._head.count(b"\n") != len(lines) + 1:
            raise ValueError("a header holds a line break")
        self.response_started = True
        self.waiting_for_100_continue = False

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        if not self.disconnected:
            self._send_out(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked_encoding else data)

    def end(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        if self.disconnected:
            return
        if self.chunked_encoding:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        self._send_out(data)
        self.response_complete = True
        self.message_event.set()
        self.on_response()

    def _send_out(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.transport.write(head if self.scope["method"] == "HEAD" else head + data)

    async def send(self, message: Any) -> None:
        """Send in ASGI's words, as fast as the client takes it."""
        if message["type"] == "http.response.start":
            self.begin(message["status"], message["headers"])
            return
        await self.drain()
        if message.get("more_body"):
            self.write(message["body"])
        else:
            self.end(message["body"])
