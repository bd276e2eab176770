"""A crowd of clients that remember what they saw: the witness in tests of money and faults."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

PROMPTS = (
    "What is Penstock?",
    "What is 7 + 5?",
    "Sort these: 9 4 7 1",
    "Reverse these: 3 8 2",
    "hi",
)


@dataclass(frozen=True)
class Seen:
    """What one client saw of one request; `request_id` is None when no reply began."""

    kind: str
    request_id: str | None
    status: int | None
    finished: bool
    usage: dict | None = None
    error: str | None = None


@dataclass(frozen=True)
class Door:
    """Where the clients knock, with which key, asking for which model."""

    api_base: str
    api_key: str
    model: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"}


def body_for(door: Door, rng: random.Random, *, stream: bool, max_tokens: int) -> dict:
    """Return a chat request that differs from the others, so that caches matter little."""
    body = {
        "model": door.model,
        "messages": [{"role": "user", "content": f"{rng.choice(PROMPTS)} {rng.randrange(10_000)}"}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def ask(session: aiohttp.ClientSession, door: Door, body: dict) -> Seen:
    """Send one request that is not streamed; finished means the whole body arrived."""
    url, request_id, status = f"{door.api_base}/chat/completions", None, None
    try:
        async with session.post(url, json=body, headers=door.headers) as reply:
            request_id, status = reply.headers.get("x-request-id"), reply.status
            answer = await reply.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return Seen("whole", request_id, status, finished=False, error=repr(error))
    finished = status == 200
    return Seen(
        "whole", request_id, status, finished, answer.get("usage"), str(answer.get("error"))
    )


async def stream(
    session: aiohttp.ClientSession, door: Door, body: dict, hang_up_after: int | None = None
) -> Seen:
    """Send one streamed request; finished means `[DONE]` was read. May hang up after n chunks."""
    url, request_id, status, usage = f"{door.api_base}/chat/completions", None, None, None
    kind, chunks = "stream" if hang_up_after is None else "hang_up", 0
    try:
        async with session.post(url, json=body, headers=door.headers) as reply:
            request_id, status = reply.headers.get("x-request-id"), reply.status
            async for line in reply.content:
                if line.startswith(b"data: [DONE]"):
                    return Seen(kind, request_id, status, finished=True, usage=usage)
                if not line.startswith(b"data: "):
                    continue
                usage = json.loads(line[6:]).get("usage") or usage
                chunks += 1
                if hang_up_after is not None and chunks >= hang_up_after:
                    return Seen(kind, request_id, status, finished=False, usage=usage)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return Seen(kind, request_id, status, finished=False, usage=usage, error=repr(error))
    return Seen(kind, request_id, status, finished=False, usage=usage, error="ended early")


async def one(session: aiohttp.ClientSession, door: Door, rng: random.Random) -> Seen:
    """Send one request of a random kind: half streamed, a third whole, the rest hang up."""
    max_tokens = rng.randrange(4, 48)
    draw = rng.random()
    if draw < 0.33:
        return await ask(session, door, body_for(door, rng, stream=False, max_tokens=max_tokens))
    body = body_for(door, rng, stream=True, max_tokens=max_tokens)
    hang_up_after = rng.randrange(1, 12) if draw > 0.83 else None
    return await stream(session, door, body, hang_up_after)


async def crowd(
    door: Door,
    *,
    clients: int,
    until: Callable[[int], bool],
    seed: int,
    timeout_seconds: float = 60,
) -> list[Seen]:
    """Run `clients` at once, each sending one request after another, until `until(sent)`."""
    seen: list[Seen] = []
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)

    async def client(number: int) -> None:
        rng = random.Random(seed * 1_000 + number)
        while not until(len(seen)):
            seen.append(await one(session, door, rng))
            if seen[-1].status != 200:
                await asyncio.sleep(0.05)

    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await asyncio.gather(*(client(number) for number in range(clients)))
    return seen


def wait_until(
    claim: Callable[[], object], *, timeout_seconds: float, what: str, every_seconds: float = 0.1
) -> None:
    """Poll `claim` until it is true; fail, saying `what` was awaited, when time runs out."""
    deadline = time.monotonic() + timeout_seconds
    while not claim():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_seconds:g} s in vain: {what}")
        time.sleep(every_seconds)
