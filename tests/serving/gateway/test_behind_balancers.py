"""Keys bound to networks, behind balancers that pass connections or requests on."""

from collections.abc import AsyncIterator
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from serving.gateway.http import connection
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.raw_http import RawClient
from tests.fixtures.waiting import eventually
from tests.serving.contract.test_proxy_protocol import V4, v2

HERE = (ip_network("127.0.0.0/8"),)
BOUND = catalog.tenant("bound", networks=("192.0.2.0/24",))
FROM_192_0_2_7 = v2(0x21, 0x11, V4)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path) as running:
        feed, mirror = running.control.feed, running.gateway.directory.mirror
        catalog.publish(running.control, BOUND)
        await eventually(lambda: mirror.version == feed.version)
        yield running


async def ask(stack: Stack, *headers: str, ahead: bytes = b"") -> int:
    """Return the status of `GET /v1/models` with the bound key, sent in two pieces."""
    lines = ["GET /v1/models HTTP/1.1", "host: x", f"authorization: Bearer {BOUND.secret}"]
    wire = ahead + "\r\n".join([*lines, *headers, "", ""]).encode()
    answer = b""
    async with RawClient(stack.url) as client:
        with suppress(ConnectionError):
            await client.send(wire[:9])
            await client.send(wire[9:])
            answer = await client.read()
    return int(answer.split()[1]) if answer else 0


async def test_nobodys_word_counts_unless_it_is_a_trusted_proxys(stack: Stack) -> None:
    assert await ask(stack, "x-forwarded-for: 192.0.2.7") == 401
    stack.gateway.app.inference.trusted_proxies = HERE
    assert await ask(stack, "x-forwarded-for: 192.0.2.7") == 200
    assert await ask(stack, "x-forwarded-for: ::ffff:192.0.2.7") == 200
    assert await ask(stack, "x-forwarded-for: 192.0.2.7:40000") == 200
    assert await ask(stack, "x-forwarded-for: 192.0.2.7", "x-forwarded-for: 198.51.100.1") == 401
    assert await ask(stack, "x-forwarded-for: nobody") == 401
    assert await ask(stack) == 401


async def test_a_balancer_that_speaks_the_proxy_protocol_says_whose_connection_it_is(
    stack: Stack,
) -> None:
    assert await ask(stack, ahead=FROM_192_0_2_7) == 400
    connections = stack.gateway.connections
    connections.proxy_protocol_from = HERE
    assert await ask(stack, ahead=FROM_192_0_2_7) == 200
    forged = "x-forwarded-for: 192.0.2.7"
    assert await ask(stack, forged, ahead=b"PROXY TCP4 198.51.100.7 10.0.0.1 4 5\r\n") == 401
    assert await ask(stack, ahead=b"PROXY TCP4 192.0.2.7 10.0.0.1 4 5\r\n") == 200
    assert await ask(stack, ahead=b"PROXY TCP4 198.51.100.7 10.0.0.1 4 5\r\n") == 401
    assert await ask(stack, ahead=v2(0x20, 0, b"")) == 401
    assert await ask(stack) == 0, "who says nothing ahead is closed"


async def test_a_proxy_header_that_does_not_end_is_not_waited_for(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROXY_HEADER_SECONDS", 0.05)
    stack.gateway.connections.proxy_protocol_from = HERE
    async with RawClient(stack.url) as client:
        await client.send(FROM_192_0_2_7[:9])
        with suppress(ConnectionError):
            assert await client.read() == b""
    await eventually(lambda: not stack.gateway.connections.addresses)


@pytest.mark.parametrize(
    ("header", "ahead"), [("x-forwarded-for: 192.0.2.7", b""), ("x-y: z", FROM_192_0_2_7)]
)
async def test_a_balancer_that_nobody_named_is_told_once(
    stack: Stack, header: str, ahead: bytes
) -> None:
    with capture_logs() as lines:
        for _ in range(2):
            await ask(stack, header, ahead=ahead)
    (line,) = [each for each in lines if each["event"] == "unknown_load_balancer"]
    assert (line["log_level"], line["peer"]) == ("warning", "127.0.0.1")
    assert "PENSTOCK_TRUSTED_PROXIES" in line["advice"]


async def test_connections_are_counted_by_the_client_behind_the_balancer(stack: Stack) -> None:
    connections = stack.gateway.connections
    connections.proxy_protocol_from = HERE
    async with RawClient(stack.url) as client:
        await client.send(FROM_192_0_2_7 + b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        await client.read()
        assert set(connections.addresses) == {"192.0.2.7"}
    connections.proxy_protocol_from, connections.shared = (), HERE
    connections.most_of_one = 1
    async with RawClient(stack.url) as one, RawClient(stack.url) as other:
        for client in (one, other):
            await client.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b" 401 " in await client.read()
        assert connections.closed_idle == 0, "many clients share a trusted proxy's address"
