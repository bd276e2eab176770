"""Connections of clients, where more is to be seen than bytes in and out: the golden traces of
`connection/` hold the rest."""

from pathlib import Path
from typing import Any

import pytest

from serving.gateway.http import connection
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}


def head(stack: Stack, *lines: bytes) -> bytes:
    start = b"POST %b HTTP/1.1\r\nhost: x\r\n" % CHAT.encode()
    key = b"authorization: Bearer %b\r\n" % stack.tenant.secret.encode()
    return start + key + b"".join(lines) + b"\r\n"


async def status_of(client: RawClient) -> int:
    answer = await client.read()
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_a_body_that_does_not_begin_is_waited_for_less(stack: Stack) -> None:
    stack.gateway.app.inference.body_begins_seconds = 0.1
    async with RawClient(stack.url) as begun, RawClient(stack.url) as silent:
        await begun.send(head(stack, b"content-length: 10\r\n") + b"{")
        await silent.send(head(stack, b"content-length: 10\r\n"))
        assert await status_of(silent) == 400
        await begun.send(b" " * 8 + b"}")
        assert b"model" in await begun.read()


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
                patch.setattr(connection, "HEAD_SECONDS", 0.1)
                await client.send(wire + b"GET /v1/mod")
                told = [await client.read()]
                while engine.counts["generation_tokens"] < 15:  # three times as long
                    told.append(await client.read())
            while b"[DONE]" not in told[-1]:
                told.append(await client.read())
                assert told[-1], "cut"
            await client.send(b"els HTTP/1.1\r\nhost: x\r\n\r\n")
            assert await status_of(client) == 401


async def test_a_large_body_is_not_held_against_the_next_request(stack: Stack) -> None:
    large = ASK | {"user": "a" * 700, "messages": [{"role": "user", "content": "a" * 300_000}]}
    async with RawClient(stack.url) as client:
        for asked in (large, ASK, large, ASK):
            await client.send(request(CHAT, stack.tenant.secret, asked))
            assert await status_of(client) == (400 if asked is large else 200)
