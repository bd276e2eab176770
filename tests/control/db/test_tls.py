"""Where TLS is asked for, no connection of ours says a password in clear: a fake server that has
no TLS and asks for the password listens to each way in which we connect."""

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from django.db import connections

from control.db import connection as factory
from control.feed.views import ChangeNotifier
from control.telemetry.health import checks
from infra.local.preflight import database_error
from infra.local.up import make_roles
from tests.simulation.database import scratch

pytestmark = pytest.mark.integration
PASSWORD = "correct-horse-battery-staple"
SSL_REQUEST = (80877103).to_bytes(4, "big")
NO_TLS = b"N"
ASK_IN_CLEAR = b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big")
ROOT = Path(__file__).parents[3]
CONNECTS = re.compile(r"psycopg\.connect\(|Connection\.connect\(|make_conninfo\(")


class FakeServer:
    """Refuses TLS and asks for the password in clear; `heard` is all that it was told."""

    def __init__(self) -> None:
        self.heard = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(30)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client, suppress(OSError):
                    client.settimeout(30)
                    self._listen(client)

    def _listen(self, client: socket.socket) -> None:
        while said := client.recv(4096):
            self.heard += said
            if said[4:8] == SSL_REQUEST:
                client.sendall(NO_TLS)
            elif said[:1] == b"p":
                return
            else:
                client.sendall(ASK_IN_CLEAR)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    made = FakeServer()
    yield made
    made.close()


@contextmanager
def configured(server: FakeServer, sslmode: str) -> Iterator[None]:
    """Django's settings as an operator's `DATABASE_URL` would make them."""
    place = {"HOST": "127.0.0.1", "PORT": str(server.port), "PASSWORD": PASSWORD}
    with pytest.MonkeyPatch.context() as patch:
        for alias in connections:
            own = connections[alias].settings_dict
            for name, value in place.items():
                patch.setitem(own, name, value)
            options = {**own["OPTIONS"], "sslmode": sslmode}
            options.pop("pool", None)
            patch.setitem(own, "OPTIONS", options)
        yield


def ask_readiness(server: FakeServer, sslmode: str) -> None:
    with configured(server, sslmode):
        assert asyncio.run(checks())["database"] is False


def listen(server: FakeServer, sslmode: str) -> None:
    with configured(server, sslmode), pytest.raises(psycopg.OperationalError):
        asyncio.run(ChangeNotifier()._ring_for_notifications())


def use_django(server: FakeServer, sslmode: str) -> None:
    with configured(server, sslmode), pytest.raises(psycopg.OperationalError):
        connections["default"].get_new_connection(connections["default"].get_connection_params())


def url_of(server: FakeServer, sslmode: str) -> str:
    return f"postgresql://me:{PASSWORD}@127.0.0.1:{server.port}/books?sslmode={sslmode}"


def check_server(server: FakeServer, sslmode: str) -> None:
    assert database_error(url_of(server, sslmode)) is not None


def set_up_roles(server: FakeServer, sslmode: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        make_roles(url_of(server, sslmode), home=None)  # type: ignore[arg-type]


def simulate(server: FakeServer, sslmode: str) -> None:
    with pytest.raises(psycopg.OperationalError), scratch(url_of(server, sslmode)):
        pass


WAYS = [ask_readiness, listen, use_django, check_server, set_up_roles, simulate]


@pytest.mark.parametrize("sslmode", ["require", "verify-full"])
@pytest.mark.parametrize("way", WAYS)
def test_no_password_is_said_in_clear_where_tls_was_asked_for(
    way: Callable[[FakeServer, str], Any], sslmode: str, server: FakeServer
) -> None:
    way(server, sslmode)
    assert server.heard[4:8] == SSL_REQUEST
    assert PASSWORD.encode() not in server.heard


@pytest.mark.parametrize("way", WAYS)
def test_the_fake_server_hears_passwords(
    way: Callable[[FakeServer, str], Any], server: FakeServer
) -> None:
    way(server, "prefer")
    assert PASSWORD.encode() in server.heard


def test_connections_are_made_in_one_place() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("platform", "billing", "web", "infra")
        for path in (ROOT / folder).rglob("*.py")
        if CONNECTS.search(path.read_text())
    }
    assert found == {str(Path(factory.__file__).relative_to(ROOT))}
