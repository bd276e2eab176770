"""Clients, two gateways and a control that all misbehave at random: whatever comes in which order,
a key completes once, and whoever is told its answer is told the same."""

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from serving.engine.simulated.settings import Fault
from serving.usage import claims
from tests.fixtures.corpus import quarter
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.keyed import take_keys
from tests.fixtures.waiting import eventually
from tests.serving.gateway.routes import CHAT

SEEDS = quarter(range(6))
KEYS = 5
CLIENTS = 60
SECONDS = 2.0
END = b"data: [DONE]\n\n"


@dataclass
class Odds:
    """One run: who plays, and what whole answers were told by key."""

    stacks: list[Stack]
    rng: random.Random
    told: defaultdict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    statuses: Counter[int] = field(default_factory=Counter)

    async def ask(self, key: str, hang_up_after: int | None = None) -> int:
        """Ask for a key's stream at some gateway; return the status, 0 where nothing came."""
        stack = self.rng.choice(self.stacks)
        number = int(key.removeprefix("key-"))
        body = CHAT.body | {"stream": True, "max_tokens": 20 + number, "ignore_eos": True}
        headers = {"idempotency-key": key, "x-client-request-id": key}
        data = b""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with stack.post(CHAT.path, body, headers) as reply:
                self.statuses[reply.status] += 1
                async for piece in reply.content.iter_any():
                    data += piece
                    if hang_up_after is not None and len(data) > hang_up_after:
                        return 0
                if reply.status == 200 and data.endswith(END):
                    self.told[key].add(data)
                return reply.status if reply.status != 200 or data.endswith(END) else 0
        return 0

    async def client(self) -> None:
        """Come at some time, for some key; leave early now and then."""
        await asyncio.sleep(self.rng.uniform(0, SECONDS))
        leaves = self.rng.random() < 0.4
        await self.ask(
            f"key-{self.rng.randrange(KEYS)}", self.rng.randrange(4_000) if leaves else None
        )

    async def trouble(self) -> None:
        """Make control and the engine misbehave, a little while each."""
        keys, engine = self.stacks[0].control.keys, self.stacks[0].engines[0]
        while True:
            await asyncio.sleep(self.rng.uniform(0.02, 0.2))
            match self.rng.randrange(4):
                case 0:
                    keys.is_down = True
                case 1:
                    keys.loses_answers = True
                case 2:
                    keys.pause_seconds = self.rng.uniform(0, 0.4)
                case _:
                    engine.script.add(Fault("die", after_chunks=self.rng.randrange(20)))
            await asyncio.sleep(self.rng.uniform(0.02, 0.2))
            self.calm()

    async def finish(self, key: str) -> None:
        """Ask until it is answered."""
        for _ in range(200):
            if await self.ask(key) == 200:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{key} was never answered")

    def calm(self) -> None:
        """Have control behave."""
        keys = self.stacks[0].control.keys
        keys.is_down = keys.loses_answers = False
        keys.pause_seconds = 0.0


def event_id_of(body: bytes) -> str:
    head: dict[str, str] = json.loads(body.removeprefix(b"data: ").partition(b"\n")[0])
    return head["id"].removeprefix("chatcmpl-")


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Stack]]:
    """Two gateways that are impatient with control."""
    monkeypatch.setattr(claims, "CLAIM_SECONDS", 0.2)
    monkeypatch.setattr(claims, "KEEP_TRY_SECONDS", 0.2)
    monkeypatch.setattr(claims, "KEEP_SECONDS", 0.6)
    monkeypatch.setattr(claims, "AGAIN_SECONDS", 0.05)
    async with running_stack(tmp_path / "one", itl_seconds=0.003) as first:
        second = Stack(first.control, tmp_path / "two", first.tenant)
        await second.start_gateway()
        await second.ready()
        await take_keys(first)
        version = first.control.feed.version
        await eventually(lambda: second.gateway.directory.mirror.version == version)
        try:
            yield [first, second]
        finally:
            await second.stop_gateway()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_key_completes_once_whatever_happens(
    pair: list[Stack], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    odds = Odds(pair, random.Random(seed))
    troubling = asyncio.create_task(odds.trouble())
    await asyncio.gather(*(odds.client() for _ in range(CLIENTS)))
    troubling.cancel()
    odds.calm()
    pair[0].engines[0].script.clear()
    for wait in ("CLAIM_SECONDS", "KEEP_TRY_SECONDS", "KEEP_SECONDS"):
        monkeypatch.setattr(claims, wait, 60.0)
    for number in range(KEYS):
        await odds.finish(f"key-{number}")
    for stack in pair:
        await eventually(lambda stack=stack: stack.gateway.journal.unacknowledged_count == 0)
        await eventually(lambda stack=stack: stack.gateway.claims.unsent_count == 0)
        await eventually(lambda stack=stack: stack.gateway.lease_manager.held_nanos() == 0)
        await eventually(lambda stack=stack: stack.gateway.disconnect_drain.total == 0)
    events = pair[0].events
    completed = Counter(one.client_request_id for one in events if one.outcome == "completed")
    assert set(completed.values()) <= {1}
    assert {key: len(bodies) for key, bodies in odds.told.items()} == {
        f"key-{number}": 1 for number in range(KEYS)
    }
    told = {event_id_of(body) for bodies in odds.told.values() for body in bodies}
    assert {one.event_id for one in events if one.outcome == "completed"} == told
    assert all(kept.is_completed for kept in pair[0].control.keys.claims.values())
