"""Whose word counts for where a request comes from."""

import socket
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from control import http_protocol
from control.http_protocol import ProxiedConnections
from control.server import listener
from tests.fixtures.serving import serving
from tests.serving.contract.test_proxy_protocol import V4, v2

pytestmark = pytest.mark.unit
SAID = [(b"x-forwarded-for", b"198.51.100.7, 10.0.0.9"), (b"x-forwarded-proto", b"https")]


async def seen(peer: str, *trusted: str, said: list[tuple[bytes, bytes]] = SAID) -> tuple[str, str]:
    """Return client and scheme as the application sees a request from a peer that says so."""
    found: dict[str, Any] = {}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.update(scope)

    server = listener(application, "127.0.0.1", 0, [ip_network(each) for each in trusted])
    server.config.load()
    scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": said}
    await server.config.loaded_app(scope, None, None)  # type: ignore[arg-type]
    return found["client"][0], found["scheme"]


async def test_nobody_is_believed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert await seen("127.0.0.1") == ("127.0.0.1", "http")


async def test_a_proxy_is_believed_up_to_the_first_stranger() -> None:
    assert await seen("10.0.0.1", "10.0.0.0/8") == ("198.51.100.7", "https")


async def test_others_are_not() -> None:
    assert await seen("203.0.113.5", "10.0.0.0/8") == ("203.0.113.5", "http")


@pytest.mark.parametrize("peer", ["::ffff:10.0.0.1", "10.0.0.1"])
@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("198.51.100.7, ::ffff:10.0.0.9", "198.51.100.7"),
        ("203.0.113.1, 198.51.100.7:80, 10.0.0.9:80", "198.51.100.7"),
        ("10.0.0.8, 10.0.0.9", "10.0.0.8"),
        ("unknown", "10.0.0.1"),
        ("198.51.100.7, unknown, 10.0.0.9", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
async def test_an_address_may_be_written_in_every_form(peer: str, said: str, client: str) -> None:
    """What makes no sense ends the chain: the proxy that said it stands for its client."""
    headers = [(b"x-forwarded-for", said.encode())]
    assert await seen(peer, "10.0.0.0/8", said=headers) == (client, "http")


async def test_a_peer_that_is_mapped_is_told_as_what_it_is() -> None:
    assert await seen("::ffff:203.0.113.5") == ("203.0.113.5", "http")


FROM_192_0_2_7 = v2(0x21, 0x11, V4)
FORGED = "x-forwarded-for: 198.51.100.7"
HERE = (ip_network("127.0.0.0/8"),)


async def who(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the client and scheme of the request."""
    headers = [
        (b"content-length", b"0"),
        (b"who", f"{scope['scheme']} {scope['client'][0]}".encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def behind_balancer() -> Iterator[str]:
    with serving(who, proxied=ProxiedConnections(HERE, scheme="https")) as address:
        yield address


def told(address: str, *pieces: bytes, header: str = "x-y: z") -> str:
    """Return what the application tells of a request after these bytes; nothing if it is reset.

    The last piece leaves with the request: a server that refuses one and closes before it has read
    the other resets the connection, and its refusal may be lost."""
    place = urlsplit(address)
    wire = f"GET / HTTP/1.1\r\nhost: x\r\n{header}\r\nconnection: close\r\n\r\n".encode()
    with socket.create_connection((place.hostname, place.port), timeout=30) as client:
        try:
            for piece in pieces[:-1]:
                client.sendall(piece)
            client.sendall(b"".join(pieces[-1:]) + wire)
            answer = client.makefile("rb").read()
        except ConnectionError:
            return ""
    _, found, rest = answer.partition(b"who: ")
    return rest.partition(b"\r\n")[0].decode() if found else answer[9:12].decode()


@pytest.mark.parametrize(
    ("pieces", "client"),
    [
        ([FROM_192_0_2_7], "https 192.0.2.7"),
        ([FROM_192_0_2_7[:5], FROM_192_0_2_7[5:]], "https 192.0.2.7"),
        ([b"PROXY TCP6 2001:db8::7 ::1 4 5\r\n"], "https 2001:db8::7"),
        ([v2(0x20, 0, b"")], "https 127.0.0.1"),
        ([], ""),
    ],
)
def test_a_balancer_names_its_client_ahead(
    behind_balancer: str, pieces: list[bytes], client: str
) -> None:
    assert told(behind_balancer, *pieces) == client
    assert told(behind_balancer, *pieces, header=FORGED) == client


def test_it_has_to_say_so_soon(behind_balancer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "PROXY_HEADER_SECONDS", 0.05)
    place = urlsplit(behind_balancer)
    with socket.create_connection((place.hostname, place.port), timeout=30) as client:
        client.sendall(FROM_192_0_2_7[:5])
        with pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize(
    ("header", "pieces", "answer"),
    [(FORGED, [], "http 127.0.0.1"), ("x-y: z", [FROM_192_0_2_7], "400")],
)
def test_a_balancer_that_nobody_named_is_told_once(
    header: str, pieces: list[bytes], answer: str
) -> None:
    with capture_logs() as lines, serving(who) as address:
        assert [told(address, *pieces, header=header) for _ in range(2)] == [answer] * 2
    (line,) = [each for each in lines if each["event"] == "unknown_load_balancer"]
    assert (line["log_level"], line["peer"]) == ("warning", "127.0.0.1")
    assert "PENSTOCK_PROXY_PROTOCOL_FROM" in line["advice"]
