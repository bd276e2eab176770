"""An upgrade that nobody here speaks is ignored (RFC 9110, section 7.8): the JDK's own client asks
for `h2c` with every request, bodies included."""

import json
import re
from typing import Any

import pytest

from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.raw_http import RawClient

H2C = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
)
WEBSOCKET = (
    b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}
BODY = json.dumps(ASK).encode()
CHUNKED = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (9, BODY[:9], len(BODY) - 9, BODY[9:])
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKS = b"Transfer-Encoding: chunked\r\n"
LOOK = b"GET /v1/models HTTP/1.1\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
HIDDEN = LOOK + b"host: x\r\n\r\n"


def wire(stack: Stack, start: bytes, lines: bytes, body: bytes = b"") -> bytes:
    key = b"authorization: Bearer %b\r\n" % stack.tenant.secret.encode()
    return start + b"host: x\r\n" + key + lines + b"\r\n" + body


async def statuses(client: RawClient, count: int) -> list[bytes]:
    """Return the statuses of the next answers on a connection, each read to its end."""
    told = b""
    while len(re.findall(rb"HTTP/1\.1 \d{3} ", told)) < count or not told.endswith((b"}", b"\n")):
        piece = await client.read()
        if not piece:
            break
        told += piece
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", told)


@pytest.mark.parametrize("upgrade", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize(
    ("start", "lines", "body"),
    [
        (POST, LENGTH, BODY),
        (POST, CHUNKS, CHUNKED),
        (LOOK, b"", b""),
        (LOOK, b"Content-Length: 0\r\n", b""),
        (POST.replace(b"1.1", b"1.0"), LENGTH, BODY),
    ],
    ids=["post", "chunked", "get", "get of length 0", "post of HTTP/1.0"],
)
async def test_a_request_that_asks_for_another_protocol_is_answered_in_this_one(
    stack: Stack, upgrade: bytes, start: bytes, lines: bytes, body: bytes
) -> None:
    async with RawClient(stack.url) as client:
        await client.send(wire(stack, start, upgrade + lines, body))
        assert await statuses(client, 1) == [b"200"]


async def test_a_connection_goes_on_behind_such_a_request(stack: Stack) -> None:
    plain = wire(stack, POST, LENGTH, BODY)
    asked = [wire(stack, POST, H2C + LENGTH, BODY), wire(stack, POST, H2C + CHUNKS, CHUNKED)]
    look = wire(stack, LOOK, H2C + b"Content-Length: 0\r\n")
    async with RawClient(stack.url) as client:
        for sent in (*asked, look, plain, *asked, plain):
            await client.send(sent)
            assert await statuses(client, 1) == [b"200"]


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize(
    ("lines", "body"), [(LENGTH, BODY), (CHUNKS, CHUNKED)], ids=["length", "chunked"]
)
async def test_its_body_may_come_in_pieces(
    stack: Stack, lines: bytes, body: bytes, size: int
) -> None:
    sent = wire(stack, POST, H2C + lines, body)
    async with RawClient(stack.url) as client:
        for at in range(0, len(sent), size):
            await client.send(sent[at : at + size])
        assert await statuses(client, 1) == [b"200"]


async def test_a_body_that_looks_like_a_request_is_none(stack: Stack) -> None:
    """It is no JSON; and what stands behind it on the connection is a request of its own."""
    sent = wire(stack, POST, H2C + b"Content-Length: %d\r\n" % len(HIDDEN), HIDDEN)
    async with RawClient(stack.url) as client:
        await client.send(sent)
        assert await statuses(client, 1) == [b"400"]
        await client.send(wire(stack, LOOK, H2C))
        assert await statuses(client, 1) == [b"200"]


async def test_a_body_announced_in_two_ways_is_refused_there_too(stack: Stack) -> None:
    for lines in (LENGTH + CHUNKS, CHUNKS + LENGTH, LENGTH + b"content-length: 4\r\n"):
        async with RawClient(stack.url) as client:
            await client.send(wire(stack, POST, H2C + lines, CHUNKED) + HIDDEN)
            told = await client.read_all()
            assert re.findall(rb"HTTP/1\.1 (\d{3}) ", told) == [b"400"]
