"""Whose word counts for where a request comes from."""

from ipaddress import ip_network
from typing import Any

import pytest

from control.server import listener

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
