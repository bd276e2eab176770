"""What is read from addresses that customers named: of whom, how much, for how long."""

import dataclasses
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from control import egress
from control.errors import InvalidValue
from tests.fixtures.name_server import NameServer

pytestmark = pytest.mark.integration
ANSWERS = {
    "/fine": (200, {}, b'{"a": 1}'),
    "/moved": (302, {"location": "/fine"}, b""),
    "/large": (200, {}, b" " * (egress.BODY_BYTES_MAX + 1)),
    "/squeezed": (200, {"content-encoding": "gzip"}, b"\x1f\x8b" + b"0" * 50),
    "/list": (200, {}, b"[]"),
    "/deep": (200, {}, b"[" * 100_000),
    "/broken": (500, {}, b'{"a": 1}'),
}
ENDED = Event()
"""Until then the slow address does not answer."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/slow":
            ENDED.wait(60)
        status, headers, body = ANSWERS.get(self.path, ANSWERS["/fine"])
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def base(names: NameServer) -> Iterator[str]:
    """A server on this machine, which may be reached."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,)).start()
        ENDED.clear()
        yield f"http://127.0.0.1:{server.server_port}"
        ENDED.set()
        server.shutdown()


def test_what_is_there_is_read(base: str) -> None:
    assert egress.fetch_json(f"{base}/fine") == {"a": 1}


@pytest.mark.parametrize("path", [each for each in ANSWERS if each != "/fine"])
def test_anything_else_is_refused(path: str, base: str) -> None:
    with pytest.raises(InvalidValue):
        egress.fetch_json(base + path)


def test_it_ends_in_time(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "resolve_within", lambda host, *_: [host])  # takes none of it
    monkeypatch.setattr(egress, "FETCH_SECONDS", 0.2)
    with pytest.raises(InvalidValue, match="no answer within"):
        egress.fetch(f"{base}/slow")


def test_a_name_of_this_machine_is_refused(base: str, settings) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, egress_allowed_networks=())
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0"):  # noqa: S104
        with pytest.raises(InvalidValue):
            egress.fetch(base.replace("127.0.0.1", host))
