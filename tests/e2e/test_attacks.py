"""Each attack once against real vLLM: a neighbour is answered, and no replica is lost to it."""

import asyncio
import io
import json
import time
from typing import Any

import aiohttp
import pytest

from tests.fixtures.attacks import BODIES, EMBEDDINGS
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

SECONDS = 1.0
CONNECTIONS = 3
ANSWERS = {200, 400, 413, 503}
GENERATING = {name: body for name, body in BODIES.items() if body[0] is not EMBEDDINGS}
"""What is sent to the engine of the neighbour; a model for embeddings has one of its own."""
ANSWER_SECONDS_MAX = 60.0
"""`--only attacks` measures how much later a neighbour is answered."""


class Asker:
    """Posts one body again and again, and remembers what came of it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str, body: bytes) -> None:
        self._session = session
        self._url = url
        self._body = body
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self.statuses: list[int] = []

    async def ask_until(self, ends: float) -> None:
        while not self.statuses or time.monotonic() < ends:
            body = io.BytesIO(self._body)
            post = self._session.post(self._url, data=body, headers=self._headers)
            async with post as reply:
                await reply.read()
            self.statuses.append(reply.status)


async def test_a_neighbour_is_answered_by_vllm_while_one_attacks(stack: Stack) -> None:
    before = replica_id(stack)
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for name, (dialect, make) in GENERATING.items():
            await attack(stack, session, name, dialect.path, make())
    assert replica_id(stack) == before


def replica_id(stack: Stack) -> str:
    replica = stack.replica()
    assert replica is not None
    return replica.replica_id


async def attack(
    stack: Stack, session: aiohttp.ClientSession, name: str, path: str, body: bytes
) -> None:
    root = stack.api_base.removesuffix("/v1")
    own = body.replace(b'"demo"', f'"{stack.model}"'.encode(), 1)
    attackers = [
        Asker(session, root + path, stack.tenant()["api_key"], own) for _ in range(CONNECTIONS)
    ]
    neighbour = Asker(
        session, f"{stack.api_base}/chat/completions", stack.api_key, question(stack.model)
    )
    ends = time.monotonic() + SECONDS
    async with asyncio.timeout(10 * ANSWER_SECONDS_MAX):
        await asyncio.gather(*(each.ask_until(ends) for each in (neighbour, *attackers)))
    assert set(neighbour.statuses) == {200}, name
    assert {status for each in attackers for status in each.statuses} <= ANSWERS, name


def question(model: str) -> bytes:
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "What is Penstock?"}],
        "max_tokens": 4,
    }
    return json.dumps(asked).encode()
