"""A customer's own server: keeps what it is told, and answers as a test wants."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from standardwebhooks import Webhook


@dataclass
class Told:
    """One call."""

    headers: dict[str, str]
    body: bytes

    def verified(self, secret: str) -> dict[str, Any]:
        """Return the message, its signature checked by the library that customers use."""
        message: dict[str, Any] = Webhook(secret).verify(self.body, self.headers)
        return message


@dataclass
class Receiver:
    """How it answers, and what it was told."""

    port: int = 0
    status: int = 200
    delay_seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    endless: bool = False
    """Whether the body of its answer never ends."""
    drips: bool = False
    """Whether it sends a byte of its status line every 0.1 s, for ever."""
    told: list[Told] = field(default_factory=list)
    ending: Event = field(default_factory=Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?token=t0ken"


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a customer's server on the loopback."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.told.append(Told({k.lower(): v for k, v in self.headers.items()}, body))
            receiver.ending.wait(receiver.delay_seconds)
            if receiver.drips:
                self._drip()
                return
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(receiver.body)
            while receiver.endless and not receiver.ending.is_set():
                self.wfile.write(b"x" * 65_536)

        def _drip(self) -> None:
            while not receiver.ending.is_set():
                self.wfile.write(b"H")
                self.wfile.flush()
                time.sleep(0.1)

        def log_message(self, *_: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):  # the caller hung up, as it should
                super().handle()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver.ending.set()
            server.shutdown()
            thread.join(10)
