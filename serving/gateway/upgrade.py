"""Parsing behind a request that asks for another protocol.

We speak no other, so the request is answered in HTTP/1.1 as if it had not asked (RFC 9110, 7.8).
llhttp ends such a message at its head and cannot be resumed: what follows goes to a new parser.
"""

from collections.abc import Sequence
from typing import Protocol

import httptools

Headers = Sequence[tuple[bytes, bytes]]
FRAMING = (b"content-length", b"transfer-encoding")


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
