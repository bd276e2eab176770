"""What two servers might read as one request or as two is refused, and nothing after it is read."""

import json
import time
from collections.abc import Collection

import pytest

from serving.gateway import protocol
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.neighbour import neighbour
from tests.fixtures.raw_http import RawClient
from tests.fixtures.waiting import eventually

SECONDS_MAX = 10.0
"""For an answer that takes milliseconds: none waits for one of the gateway's time-outs."""
LOOK = b"GET /v1/models HTTP/1.1\r\n"
START = b"POST /v1/chat/completions HTTP/1.1\r\n"
BODY = json.dumps({"model": "demo", "messages": MESSAGES, "max_tokens": 1}).encode()
LENGTH = b"%d" % len(BODY)
HIDDEN = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKS = b"transfer-encoding: chunked\r\n"
UPGRADE = b"connection: upgrade\r\nupgrade: h2c\r\n"
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)

FRAMES = {
    "both lengths": (b"content-length: %b\r\ntransfer-encoding: chunked\r\n" % LENGTH, CHUNKED),
    "both, turned": (b"transfer-encoding: chunked\r\ncontent-length: 4\r\n", CHUNKED),
    "a coding nobody knows": (b"transfer-encoding: xchunked\r\n", CHUNKED),
    "chunked is not last": (b"transfer-encoding: chunked, identity\r\n", CHUNKED),
    "another coding first": (b"transfer-encoding: gzip, chunked\r\n", CHUNKED),
    "another coding above": (b"transfer-encoding: identity\r\n" + CHUNKS, CHUNKED),
    "nothing first": (b"transfer-encoding: ,chunked\r\n", CHUNKED),
    "chunked twice": (CHUNKS * 2, CHUNKED),
    "chunked with a quality": (b"transfer-encoding: chunked;q=1\r\n", CHUNKED),
    "chunked in quotes": (b'transfer-encoding: "chunked"\r\n', CHUNKED),
    "no coding": (b"transfer-encoding:\r\ncontent-length: %b\r\n" % LENGTH, BODY),
    "a folded coding": (b"transfer-encoding:\r\n chunked\r\n", CHUNKED),
    "a vertical tab": (b"transfer-encoding: \x0bchunked\r\n", CHUNKED),
    "space before the colon": (b"transfer-encoding : chunked\r\n", CHUNKED),
    "two lengths": (b"content-length: %b\r\ncontent-length: 4\r\n" % LENGTH, BODY),
    "a length twice": (b"content-length: %b\r\n" % LENGTH * 2, BODY),
    "no length": (b"content-length:\r\n", BODY),
    "a length with a form feed": (b"content-length: %b\x0c\r\n" % LENGTH, BODY),
    "lengths in one": (b"content-length: %b, %b\r\n" % (LENGTH, LENGTH), BODY),
    "a sign": (b"content-length: +%b\r\n" % LENGTH, BODY),
    "less than nothing": (b"content-length: -1\r\n", BODY),
    "in hexadecimals": (b"content-length: 0x%x\r\n" % len(BODY), BODY),
    "longer than any number": (b"content-length: " + b"9" * 30 + b"\r\n", BODY),
    "a folded header": (b"x-a: b\r\n c\r\ncontent-length: %b\r\n" % LENGTH, BODY),
    "NUL in a header": (b"x-a: b\x00c\r\ncontent-length: %b\r\n" % LENGTH, BODY),
    "CR in a header": (b"x-a: b\rcontent-length: 4\r\ncontent-length: %b\r\n" % LENGTH, BODY),
    "a size with a sign": (CHUNKS, b"+" + CHUNKED),
    "a size in other words": (CHUNKS, b"0x" + CHUNKED),
    "no size": (CHUNKS, b"\r\n" + CHUNKED),
    "a blank before a size": (CHUNKS, b" " + CHUNKED),
    "a blank after a size": (CHUNKS, CHUNKED.replace(b"\r\n", b" \r\n", 1)),
    "LF in an extension": (CHUNKS, CHUNKED.replace(b"\r\n", b";a\nb\r\n", 1)),
    "CR in an extension": (CHUNKS, CHUNKED.replace(b"\r\n", b";a\rb\r\n", 1)),
    "a size too long": (CHUNKS, b"f" * 17 + b"\r\n" + BODY),
    "more than the size": (CHUNKS, b"4\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "no end of a chunk": (CHUNKS, CHUNKED.replace(b"\r\n0", b"\n0")),
    "a length in a trailer": (CHUNKS, CHUNKED.removesuffix(b"\r\n") + b"content-length: 9\r\n\r\n"),
    "a coding in a trailer": (CHUNKS, CHUNKED.removesuffix(b"\r\n") + CHUNKS + b"\r\n"),
    "no end of a size": (CHUNKS, CHUNKED.replace(b"\r\n", b"\n")),
}
LINES = {
    "no version": b"GET /v1/models\r\nhost: x\r\n\r\n",
    "chunks of old": b"POST /v1/models HTTP/1.0\r\n" + CHUNKS + b"\r\n" + CHUNKED,
    "chunks of old, kept": b"POST /v1/models HTTP/1.0\r\nconnection: keep-alive\r\n"
    + CHUNKS
    + b"\r\n"
    + CHUNKED,
    "lines that end in LF": b"GET /v1/models HTTP/1.1\nhost: x\n\n",
    "one line that ends in LF": b"GET /v1/models HTTP/1.1\r\nhost: x\n\r\n",
    "lines that end in CR": b"GET /v1/models HTTP/1.1\rhost: x\r\r",
    "a folded first line": b"GET /v1/models HTTP/1.1\r\n host: x\r\n\r\n",
    "no name of a header": b"GET /v1/models HTTP/1.1\r\n: x\r\n\r\n",
    "no colon": b"GET /v1/models HTTP/1.1\r\nhost\r\n\r\n",
    "NUL in the address": b"GET /v1/models\x00 HTTP/1.1\r\n\r\n",
    "a tunnel": b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    "an address without a path": b"GET http://x HTTP/1.1\r\nhost: x\r\n\r\n",
    "two spaces": b"GET  /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    "an odd version": b"GET /v1/models HTTP/1.1 x\r\nhost: x\r\n\r\n",
    "no method": b" /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    "bytes of TLS": bytes.fromhex("1603010200010001fc0303") + b"\x00" * 32,
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.fixture(autouse=True)
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the gateway's time-outs longer than any answer of a busy machine."""
    for wait in ("HEAD_SECONDS", "TAIL_SECONDS", "PART_SECONDS"):
        monkeypatch.setattr(protocol, wait, 30.0)


async def answers(stack: Stack, wire: bytes) -> tuple[list[bytes], float]:
    """Return what came back before the connection was closed, a status each, and within how many
    seconds."""
    async with RawClient(stack.url) as client:
        begun = time.monotonic()
        await client.send(wire)
        told = await client.read_all()
        return [part[:3] for part in told.split(b"HTTP/1.1 ")[1:]], time.monotonic() - begun


async def odd(stack: Stack, wires: dict[str, bytes], right: Collection[list[bytes]]) -> list[str]:
    """Return what was answered otherwise, or after a time-out, while a neighbour asks."""
    found = []
    async with neighbour(stack.url, stack.tenant.secret) as served:
        for name, wire in wires.items():
            statuses, seconds = await answers(stack, wire)
            if statuses not in right:
                found.append(f"{name}: {statuses}")
            count = len(served)
            await eventually(lambda before=count: len(served) > before)
            if seconds > SECONDS_MAX:
                found.append(f"{name}: {seconds:.3f} s")
    return found


def framed(stack: Stack, lines: bytes, body: bytes, start: bytes = START) -> bytes:
    """Return a request with these lines around its length, and another hidden behind it."""
    key = b"authorization: Bearer %b\r\n" % stack.tenant.secret.encode()
    return start + b"host: x\r\n" + key + lines + b"\r\n" + body + HIDDEN


async def test_what_is_framed_in_two_ways_is_refused(stack: Stack) -> None:
    wires = {name: framed(stack, *frame) for name, frame in FRAMES.items()}
    upgrades = {
        f"{name}, and another protocol": framed(stack, UPGRADE + lines, body)
        for name, (lines, body) in FRAMES.items()
    }
    assert await odd(stack, wires | upgrades, ([b"400"], [b"413"])) == []
    assert stack.control.billing.events == {}


async def test_nobody_answers_what_is_refused_while_it_is_read(stack: Stack) -> None:
    """An answer that needs no body, and one to a wrong key, would be ready at once."""
    secret = stack.tenant.secret.encode()
    looks = {name: framed(stack, *frame, LOOK) for name, frame in FRAMES.items()}
    strange = {
        f"{name}, a strange key": framed(stack, *frame).replace(secret, b"nobody's")
        for name, frame in FRAMES.items()
    }
    assert await odd(stack, looks | strange, ([b"400"],)) == []


async def test_what_is_hardly_a_request_gets_one_refusal_at_most(stack: Stack) -> None:
    wires = {name: line + HIDDEN for name, line in LINES.items()}
    assert await odd(stack, wires, ([b"400"], [b"401"], [])) == []


async def test_what_follows_a_request_spoils_no_answer(stack: Stack) -> None:
    """The first is answered as if it were alone, and what is behind it is not read."""
    first = framed(stack, b"content-length: %b\r\n" % LENGTH, BODY).removesuffix(HIDDEN)
    wires = {
        "another": first + HIDDEN,
        "no request": first + b"\x00\x01\x02" * 10,
        "one framed in two ways": first + framed(stack, *FRAMES["both lengths"]),
        "a head too large": first + b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000,
        "another protocol, a body": framed(
            stack, UPGRADE + b"content-length: %b\r\n" % LENGTH, BODY
        ),
        "another protocol": framed(stack, UPGRADE, b"", LOOK),
    }
    assert await odd(stack, wires, ([b"200"],)) == []
