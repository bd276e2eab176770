"""Heads and bodies that are too large or never end, as a client of control's own server sends."""

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from control import asgi_middleware, http_protocol
from control.asgi import application, internal_application, public_body_bytes_max
from control.asgi_middleware import limit_bodies
from control.dataplane.authentication import (
    BODY_BYTES_MAX,
    STRANGERS_BODY_BYTES_MAX,
    body_bytes_max,
)
from tests.fixtures.credentials import bearer
from tests.fixtures.serving import serving

pytestmark = pytest.mark.integration
MOST = 1000


@pytest.fixture
def taken() -> list[bytes]:
    """What the application behind the bound was given."""
    return []


@pytest.fixture
def address(taken: list[bytes]) -> Iterator[str]:
    async def keep(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            taken.append(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    with serving(limit_bodies(keep, lambda scope: MOST)) as found:
        yield found


def exchange(address: str, *parts: bytes) -> bytes:
    """Send bytes and return what comes until the server hangs up."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=30) as client:
        found = b""
        try:
            for part in parts:
                client.sendall(part)
            while more := client.recv(2**16):
                found += more
        except ConnectionError:
            return found
    return found


def head(*lines: str, path: str = "/api/v1/x") -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: x", *lines, "", "")).encode()


def sized(size: int) -> bytes:
    return head(f"Content-Length: {size}", "Connection: close")


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks)


def test_a_body_as_large_as_may_be_is_taken(address: str, taken: list[bytes]) -> None:
    assert exchange(address, sized(MOST), b"x" * MOST).startswith(b"HTTP/1.1 204 ")
    assert len(b"".join(taken)) == MOST


@pytest.mark.parametrize("sent", [b"", b"x" * 5000], ids=["none of it", "all of it"])
def test_an_announced_body_is_refused_unread(
    address: str, taken: list[bytes], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi_middleware, "UNREAD_SECONDS", 60 if sent else 0.2)
    reply = exchange(address, sized(len(sent) or 1_048_576_000), sent)
    assert reply.startswith(b"HTTP/1.1 413 ") and b"request_too_large" in reply
    assert b"at most 1,000 bytes" in reply and taken == []


def test_who_expects_to_be_asked_is_not(address: str) -> None:
    reply = exchange(address, head("Content-Length: 5000", "Expect: 100-continue"))
    assert reply.startswith(b"HTTP/1.1 413 ")


def test_a_body_of_unknown_size_ends_at_the_bound(address: str, taken: list[bytes]) -> None:
    parts = chunked(*[b"x" * 400] * 10), b"0\r\n\r\n"
    reply = exchange(address, head("Transfer-Encoding: chunked"), *parts)
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert len(b"".join(taken)) <= MOST


def test_a_body_that_does_not_come_is_not_waited_for(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi_middleware, "BODY_SECONDS", 0.1)
    reply = exchange(address, sized(MOST) + b"x")
    assert reply.startswith(b"HTTP/1.1 408 ") and b"request_timeout" in reply


@pytest.mark.parametrize("begun", [b"", b"GET / HT"], ids=["nothing", "half a line"])
def test_a_head_that_does_not_come_is_not_waited_for(
    address: str, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.1)
    assert exchange(address, begun) == b""


def test_nor_is_the_next_one_of_a_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=30) as client:
        client.sendall(head("Content-Length: 0"))
        assert client.recv(2**16).startswith(b"HTTP/1.1 204 ")
        monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.1)
        client.sendall(b"\r\n")
        with pytest.raises(ConnectionResetError):
            client.recv(2**16)


def test_a_head_without_end_is_refused(address: str) -> None:
    lines = (b"X: " + b"y" * 2**16 + b"\r\n" for _ in range(64))
    reply = exchange(address, b"GET / HTTP/1.1\r\n", *lines)
    assert reply.startswith(b"HTTP/1.1 431 ") or reply == b""


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/accounts/login/", 256 * 2**10),
        ("/org_1/api-keys", 256 * 2**10),
        ("/api/v1/organizations", 2**20),
        ("/scim/v2/Users", 2**20),
        ("/stripe/webhook", 512 * 2**10),
        ("/admin/pricing/price/", 2 * 2**20),
        ("/org_1/playground/stream", 2 * 2**20),
        ("/org_1/team/sso/saml", 2 * 2**20),
    ],
)
def test_each_address_has_its_bound(path: str, most: int) -> None:
    assert public_body_bytes_max({"path": path}) == most


def test_strangers_have_next_to_nothing_of_the_internal_listener() -> None:
    shown = [(name.encode(), value.encode()) for name, value in bearer("gateway").items()]
    assert body_bytes_max({"headers": shown}) == BODY_BYTES_MAX
    assert body_bytes_max({"headers": []}) == STRANGERS_BODY_BYTES_MAX


@pytest.mark.parametrize(
    ("product", "path"),
    [(application, "/accounts/login/"), (internal_application, "/internal/v1/usage-events")],
)
def test_both_listeners_have_bounds(product: Any, path: str) -> None:
    with serving(product) as address:
        lines = f"Content-Length: {2**20}", "Expect: 100-continue"
        assert exchange(address, head(*lines, path=path)).startswith(b"HTTP/1.1 413 ")
