"""Streams that are asked for again and again by their idempotency keys, while gateways are killed:
what each client was told, held against the books."""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp

from tests.support.books import Books
from tests.support.load import Door, wait_until
from tests.support.stack import Stack

END = b"data: [DONE]\n\n"
TRY_SECONDS = 60.0
LIFE_SECONDS = 120.0
PAUSE_SECONDS = 0.1
Victims = Mapping[str, tuple[float, float]]
"""Processes, and how many seconds after it was ready each is killed: at least and at most."""
GATEWAYS: Victims = {"gateway": (0.2, 3.0), "gateway-2": (0.2, 3.0)}
BOOKED = """
/* How each request of the keys ended, what was lost at first by its correction. */
SELECT client_request_id, event_id::text, outcome FROM metering_usage_event AS event
WHERE client_request_id LIKE %s AND NOT EXISTS (
    SELECT FROM metering_usage_correction AS correction
    WHERE correction.event_id = event.event_id)
UNION ALL SELECT client_request_id, event_id::text, outcome FROM metering_usage_correction
"""


@dataclass
class Life:
    """All that the clients of one key were told: whole answers, and how other tries ended."""

    key: str
    bodies: list[bytes] = field(default_factory=list)
    again: int = 0
    other: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Replays:
    """What came of all keys."""

    lives: list[Life]
    kills: int

    def count(self, what: str) -> int:
        """Return how many tries ended so."""
        return sum(life.other[what] for life in self.lives)


async def turn_on(stack: Stack, tenant: dict[str, str]) -> None:
    """Have an organization take idempotency keys, as its owner would."""
    url = f"{stack.credentials['console_url']}/api/v1/organizations/{tenant['organization_id']}"
    headers = {"authorization": f"Bearer {tenant['manage_key']}"}
    async with (
        aiohttp.ClientSession() as session,
        session.patch(url, json={"takes_idempotency_keys": True}, headers=headers) as reply,
    ):
        assert reply.status == 200, await reply.text()
    await asyncio.sleep(1.5)


async def replay(
    stack: Stack,
    tenant: dict[str, str],
    *,
    keys: int,
    times: int,
    clients: int,
    victims: Victims,
    seed: int,
) -> Replays:
    """Ask for `keys` streams until each was told whole `times` times, killing meanwhile."""
    lives = [Life(f"idem-{seed}-{number}") for number in range(keys)]
    door = Door(stack.api_base, tenant["api_key"], stack.model)
    kills, rng = Counter[str](), random.Random(seed)
    killing = [
        asyncio.create_task(_kill(stack, victim, pause, kills, rng))
        for victim, pause in victims.items()
    ]
    waiting = iter(lives)

    async def client(session: aiohttp.ClientSession) -> None:
        for life in waiting:
            # Two at once, as a client that gave the first up for lost.
            await asyncio.gather(
                _live(session, door, life, times), _live(session, door, life, times)
            )

    timeout = aiohttp.ClientTimeout(total=TRY_SECONDS)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    try:
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            await asyncio.gather(*(client(session) for _ in range(clients)))
    finally:
        for killer in killing:
            killer.cancel()
    return Replays(lives, kills.total())


def must_be_once(stack: Stack, replays: Replays, *, seed: int) -> int:
    """Check every key's answers and charges: the one that was told is the one that completed.
    Return how many requests came to nothing, and were charged to nobody."""
    for life in replays.lives:
        assert len(set(life.bodies)) == 1, f"{life.key} was told differently"
        assert all(body.endswith(END) for body in life.bodies)
    strange = {what for life in replays.lives for what in life.other} - EXPECTED
    assert not strange, strange
    stack.wait_ready(timeout_seconds=60)
    wait_until(stack.journals_are_empty, timeout_seconds=60, what="all events are booked")
    books = Books(stack.database_url)
    booked = books.rows(BOOKED, f"idem-{seed}-%")
    completed = sorted(
        (row["client_request_id"], row["event_id"])
        for row in booked
        if row["outcome"] == "completed"
    )
    assert completed == sorted((life.key, _event_id(life.bodies[0])) for life in replays.lives)
    return len(booked) - len(completed)


def _event_id(body: bytes) -> str:
    head: dict[str, str] = json.loads(body[len(b"data: ") :].partition(b"\n")[0])
    return head["id"].removeprefix("chatcmpl-")


EXPECTED = {"broken", "cut", "409", "503"}
"""How a try may end besides whole: no answer, half of one, "still running", "not now"."""


async def _live(session: aiohttp.ClientSession, door: Door, life: Life, times: int) -> None:
    until = time.monotonic() + LIFE_SECONDS
    while len(life.bodies) < times:
        assert time.monotonic() < until, f"{life.key} was never answered: {life.other}"
        what = await _try(session, door, life)
        if what:
            life.other[what] += 1
            await asyncio.sleep(PAUSE_SECONDS)


async def _try(session: aiohttp.ClientSession, door: Door, life: Life) -> str:
    """Ask once; return how it ended, nothing where it was told whole."""
    headers = door.headers | {"idempotency-key": life.key, "x-client-request-id": life.key}
    body = {
        "model": door.model,
        "messages": [{"role": "user", "content": f"Tell me of {life.key}."}],
        "max_tokens": 48,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    told, status = b"", 0
    try:
        url = f"{door.api_base}/chat/completions"
        async with session.post(url, json=body, headers=headers) as reply:
            status = reply.status
            async for piece in reply.content.iter_any():
                told += piece
            if status == 200 and told.endswith(END):
                life.bodies.append(told)
                life.again += reply.headers.get("idempotent-replayed") == "true"
                return ""
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
    return str(status) if status not in (0, 200) else "cut" if status else "broken"


async def _kill(
    stack: Stack,
    victim: str,
    pause: tuple[float, float],
    kills: Counter[str],
    rng: random.Random,
) -> None:
    while True:
        if not await asyncio.to_thread(stack.serves, victim):
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        await asyncio.sleep(rng.uniform(*pause))
        pid = await asyncio.to_thread(stack.living_pid, victim)
        os.kill(pid, signal.SIGKILL)
        kills[victim] += 1
