"""What two servers might read as one request or as two is refused, and nothing after it is read."""

import json
import time

import pytest

from tests.support.gateway import MESSAGES, Stack
from tests.support.raw_http import RawClient

CHAT = b"/v1/chat/completions"
BODY = json.dumps({"model": "demo", "messages": MESSAGES, "max_tokens": 1}).encode()
LENGTH = b"%d" % len(BODY)
HIDDEN = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)

FRAMES = {
    "both lengths": (b"content-length: %b\r\ntransfer-encoding: chunked\r\n" % LENGTH, CHUNKED),
    "both, turned": (b"transfer-encoding: chunked\r\ncontent-length: 4\r\n", CHUNKED),
    "a coding nobody knows": (b"transfer-encoding: xchunked\r\n", CHUNKED),
    "chunked is not last": (b"transfer-encoding: chunked, identity\r\n", CHUNKED),
    "a vertical tab": (b"transfer-encoding: \x0bchunked\r\n", CHUNKED),
    "space before the colon": (b"transfer-encoding : chunked\r\n", CHUNKED),
    "two lengths": (b"content-length: %b\r\ncontent-length: 4\r\n" % LENGTH, BODY),
    "lengths in one": (b"content-length: %b, %b\r\n" % (LENGTH, LENGTH), BODY),
    "a sign": (b"content-length: +%b\r\n" % LENGTH, BODY),
    "less than nothing": (b"content-length: -1\r\n", BODY),
    "in hexadecimals": (b"content-length: 0x%x\r\n" % len(BODY), BODY),
    "longer than any number": (b"content-length: " + b"9" * 30 + b"\r\n", BODY),
    "a folded header": (b"x-a: b\r\n c\r\ncontent-length: %b\r\n" % LENGTH, BODY),
    "NUL in a header": (b"x-a: b\x00c\r\ncontent-length: %b\r\n" % LENGTH, BODY),
    "CR in a header": (b"x-a: b\rcontent-length: 4\r\ncontent-length: %b\r\n" % LENGTH, BODY),
    "a size with a sign": (b"transfer-encoding: chunked\r\n", b"+" + CHUNKED),
    "a size in other words": (b"transfer-encoding: chunked\r\n", b"0x" + CHUNKED),
    "a size too long": (b"transfer-encoding: chunked\r\n", b"f" * 17 + b"\r\n" + BODY),
    "more than the size": (b"transfer-encoding: chunked\r\n", b"4\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "no end of a size": (b"transfer-encoding: chunked\r\n", CHUNKED.replace(b"\r\n", b"\n")),
}
LINES = {
    "no version": b"GET /v1/models\r\nhost: x\r\n\r\n",
    "two spaces": b"GET  /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    "an odd version": b"GET /v1/models HTTP/1.1 x\r\nhost: x\r\n\r\n",
    "no method": b" /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    "bytes of TLS": bytes.fromhex("1603010200010001fc0303") + b"\x00" * 32,
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


async def answers(stack: Stack, wire: bytes) -> list[bytes]:
    """Return what came back before the connection was closed, a status each."""
    async with RawClient(stack.url) as client:
        begun = time.monotonic()
        await client.send(wire)
        told = await client.read_all(seconds=5)
        assert time.monotonic() - begun < 5
    return [part[:3] for part in told.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("frame", FRAMES)
async def test_what_is_framed_in_two_ways_is_refused(stack: Stack, frame: str) -> None:
    lines, body = FRAMES[frame]
    key = b"authorization: Bearer %b\r\n" % stack.tenant.secret.encode()
    head = b"POST %b HTTP/1.1\r\nhost: x\r\n%b%b\r\n" % (CHAT, key, lines)
    assert await answers(stack, head + body + HIDDEN) in ([b"400"], [b"413"])
    assert stack.control.billing.events == {}


@pytest.mark.parametrize("line", LINES)
async def test_what_is_hardly_a_request_gets_one_refusal_at_most(stack: Stack, line: str) -> None:
    assert await answers(stack, LINES[line] + HIDDEN) in ([b"400"], [b"401"], [])
