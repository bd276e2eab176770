"""Whose word counts for where a request comes from."""

from ipaddress import ip_network
from typing import Any

import pytest

from control.serve import listener

pytestmark = pytest.mark.unit
SAID = [(b"x-forwarded-for", b"198.51.100.7, 10.0.0.9"), (b"x-forwarded-proto", b"https")]


async def seen(peer: str, *trusted: str) -> tuple[str, str]:
    """Return client and scheme as the application sees a request from a peer that says SAID."""
    found: dict[str, Any] = {}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.update(scope)

    server = listener(application, "127.0.0.1", 0, [ip_network(each) for each in trusted])
    server.config.load()
    scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": SAID}
    await server.config.loaded_app(scope, None, None)  # type: ignore[arg-type]
    return found["client"][0], found["scheme"]


async def test_nobody_is_believed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert await seen("127.0.0.1") == ("127.0.0.1", "http")


async def test_a_proxy_is_believed_up_to_the_first_stranger() -> None:
    assert await seen("10.0.0.1", "10.0.0.0/8") == ("198.51.100.7", "https")


async def test_others_are_not() -> None:
    assert await seen("203.0.113.5", "10.0.0.0/8") == ("203.0.113.5", "http")
