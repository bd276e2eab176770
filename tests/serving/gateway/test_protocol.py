"""What comes around bodies is bounded as it comes, and every wait for a client ends."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from serving.gateway import conversation, protocol
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}
CHUNKED = b"transfer-encoding: chunked\r\n"


def head(stack: Stack, *lines: bytes) -> bytes:
    start = b"POST %b HTTP/1.1\r\nhost: x\r\n" % CHAT.encode()
    key = b"authorization: Bearer %b\r\n" % stack.tenant.secret.encode()
    return start + key + b"".join(lines) + b"\r\n"


def chunked(data: bytes, size: int, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    framed = [b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces]
    return b"".join(framed) + b"0\r\n" + trailer + b"\r\n"


async def status_of(client: RawClient) -> int:
    answer = await client.read()
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.mark.parametrize(
    "sent",
    [
        b"x-a: b\r\n" * 100_000,
        b"x-long: " + b"a" * 1_000_000,
    ],
)
async def test_headers_without_end_are_refused_before_they_end(stack: Stack, sent: bytes) -> None:
    async with RawClient(stack.url) as client:
        start = head(stack).removesuffix(b"\r\n")
        with suppress(ConnectionError):
            for at in range(0, len(sent), 16_384):
                await client.send((start if not at else b"") + sent[at : at + 16_384])
                await asyncio.sleep(0.001)
        assert await status_of(client) == 431


@pytest.mark.parametrize("around", ["extension", "trailer"])
async def test_extensions_and_trailers_without_end_are_cut_off(stack: Stack, around: str) -> None:
    long = {
        "extension": {"extension": b";" + b"x" * 20_000},
        "trailer": {"trailer": b"x: y\r\n" * 60_000},
    }
    data = json.dumps(ASK).encode()
    async with RawClient(stack.url) as client:
        wire = head(stack, CHUNKED) + chunked(data, 16, **long[around])
        with suppress(ConnectionError):
            for at in range(0, len(wire), 16_384):
                await client.send(wire[at : at + 16_384])
                await asyncio.sleep(0.001)
        assert await status_of(client) == 431


async def test_small_chunks_and_a_trailer_are_no_offence_and_trailers_no_headers(
    stack: Stack,
) -> None:
    data = json.dumps(ASK).encode()
    async with RawClient(stack.url) as client:
        trailer = b"authorization: Bearer other\r\n"
        await client.send(head(stack, CHUNKED) + chunked(data, 16, trailer=trailer))
        assert await status_of(client) == 200


async def test_a_head_that_does_not_end_is_not_waited_for(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    for start in (b"\r\n", b"POST", head(stack).removesuffix(b"\r\n")):
        async with RawClient(stack.url) as client:
            await client.send(start)
            with suppress(ConnectionError):
                assert await client.read() == b""


async def test_a_body_that_does_not_come_is_not_waited_for(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "BODY_SECONDS_MAX", 0.1)
    for sent in (b"", b"{"):
        async with RawClient(stack.url) as client:
            await client.send(head(stack, b"content-length: 10\r\n") + sent)
            assert await status_of(client) == 400


async def test_a_body_that_does_not_begin_is_waited_for_less(stack: Stack) -> None:
    stack.gateway.app._body_begins_seconds = 0.1
    async with RawClient(stack.url) as begun, RawClient(stack.url) as silent:
        await begun.send(head(stack, b"content-length: 10\r\n") + b"{")
        await silent.send(head(stack, b"content-length: 10\r\n"))
        assert await status_of(silent) == 400
        await begun.send(b" " * 8 + b"}")
        assert b"model" in await begun.read()


async def test_who_is_refused_may_read_why(stack: Stack) -> None:
    """It sends all before it reads, as most clients do, and asks to close."""
    large = b" " * 5_000_000
    wire = head(stack, b"connection: close\r\ncontent-length: %d\r\n" % len(large)) + large
    async with RawClient(stack.url) as client:
        await client.send(wire)
        told = await client.read_all()
        assert told.startswith(b"HTTP/1.1 413 ")
        assert told.count(b"HTTP/1.1 ") == 1


async def test_of_a_refused_body_not_everything_is_read(stack: Stack) -> None:
    async with RawClient(stack.url) as client:
        await client.send(head(stack, b"content-length: %d\r\n" % 10**12))
        assert await status_of(client) == 413
        with pytest.raises(ConnectionError):
            for _ in range(1_000):
                await client.send(b" " * 100_000)


async def test_a_request_sent_ahead_is_left_unread_and_a_hang_up_is_heard(tmp_path: Path) -> None:
    async with running_stack(tmp_path, itl_seconds=0.02) as stack:
        wire = request(CHAT, stack.tenant.secret, ASK | {"max_tokens": 200, "stream": True})
        async with RawClient(stack.url) as client:
            await client.send(wire + wire)
            assert b"200 OK" in await client.read()
            assert stack.gateway.app.in_flight == 1
        await eventually(lambda: stack.gateway.app.in_flight == 0)
        assert stack.engines[0].engine.counts["generation_tokens"] < 200


async def test_a_head_that_begins_during_an_answer_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stack(tmp_path, itl_seconds=0.02) as stack:
        engine = stack.engines[0].engine
        wire = request(CHAT, stack.tenant.secret, ASK | {"max_tokens": 20, "stream": True})
        async with RawClient(stack.url) as client:
            with monkeypatch.context() as patch:
                patch.setattr(protocol, "HEAD_SECONDS", 0.1)
                await client.send(wire + b"GET /v1/mod")
                told = [await client.read()]
                while engine.counts["generation_tokens"] < 15:  # three times as long
                    told.append(await client.read())
            while b"[DONE]" not in told[-1]:
                told.append(await client.read())
                assert told[-1], "cut"
            await client.send(b"els HTTP/1.1\r\n\r\n")
            assert await status_of(client) == 401


async def test_the_head_of_an_answer_leaves_with_its_body_and_says_the_date(stack: Stack) -> None:
    for more in ({}, {"stream": True}):
        async with RawClient(stack.url) as client:
            await client.send(request(CHAT, stack.tenant.secret, ASK | more))
            first, _, rest = (await client.read()).partition(b"\r\n\r\n")
            assert first.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"\r\ndate: " in first
            assert rest


async def test_a_large_body_is_not_held_against_the_next_request(stack: Stack) -> None:
    large = ASK | {"user": "a" * 700, "messages": [{"role": "user", "content": "a" * 300_000}]}
    async with RawClient(stack.url) as client:
        for asked in (large, ASK, large, ASK):
            await client.send(request(CHAT, stack.tenant.secret, asked))
            assert await status_of(client) == (400 if asked is large else 200)
