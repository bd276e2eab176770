"""A slot ends with the engine's last byte: no process, disk or client is waited for."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from serving.gateway import render_offload
from serving.gateway.render_offload import RenderOffload
from serving.pool.overload import SharedCapacity
from serving.pool.pool import Pool
from serving.pool.slot_request import SlotRequest
from serving.usage.journal_writer import JournalWriter
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

PATH = "/v1/embeddings"
LARGE: dict[str, Any] = {"model": "demo-embed", "input": ["A penstock is"] * 2_000}
SMALL: dict[str, Any] = {"model": "demo-embed", "input": "A penstock is"}
CHAT: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 3}
READERS = 4


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[Stack]:
    """A stack whose two models have one slot each."""
    async with running_stack(tmp_path) as stack:
        await stack.offer_embeddings()
        url, fleet = f"http://127.0.0.1:{stack.engines[0].port}", stack.control.fleet
        fleet.publish("replica", "rep_1", catalog.replica(url, slots=1))
        fleet.publish("replica", "rep_99", catalog.replica(url, 99, "var_embed", slots=1))
        pools = stack.gateway.directory.pools.values()
        await eventually(
            lambda: all(one.share == 1 for pool in pools for one in pool.replicas.values())
        )
        yield stack


def embedder(stack: Stack) -> Pool:
    return stack.gateway.directory.pools["dep_var_embed"]


def taken(pool: Pool) -> int:
    return sum(replica.in_flight for replica in pool.replicas.values())


async def status_of(stack: Stack, path: str, body: dict[str, Any]) -> int:
    async with stack.post(path, body) as reply:
        await reply.read()
        return reply.status


@dataclass
class Delay:
    """What keeps ends of long answers from being made, until `may_end`."""

    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.fixture
async def delay(monkeypatch: pytest.MonkeyPatch) -> Delay:
    made, finish = Delay(), RenderOffload.finish

    async def late(self: RenderOffload, *args: Any) -> Any:
        made.has_begun.set()
        await made.may_end.wait()
        return await finish(self, *args)

    monkeypatch.setattr(RenderOffload, "finish", late)
    return made


async def test_others_have_the_slot_while_a_long_answer_is_made(
    single: Stack, delay: Delay
) -> None:
    long = asyncio.create_task(status_of(single, PATH, LARGE))
    await eventually(lambda: single.gateway.render_offload._vacated.held > 0)
    assert taken(embedder(single)) == 0
    assert await status_of(single, PATH, SMALL) == 200
    assert not embedder(single).is_idle
    delay.may_end.set()
    assert await long == 200
    assert single.gateway.render_offload._vacated.held == 0
    await eventually(lambda: embedder(single).is_idle)
    assert taken(embedder(single)) == embedder(single).load_shedder.tokens == 0
    assert {event.outcome for event in await single.booked()} == {"completed"}


async def test_answers_without_room_keep_their_slots(single: Stack, delay: Delay) -> None:
    single.gateway.render_offload._vacated = SharedCapacity(1_000)
    long = asyncio.create_task(status_of(single, PATH, LARGE))
    await delay.has_begun.wait()
    assert taken(embedder(single)) == 1
    delay.may_end.set()
    assert await long == 200
    await eventually(lambda: taken(embedder(single)) == 0)


async def test_a_client_that_leaves_while_its_answer_is_made_leaves_nothing_taken(
    single: Stack, delay: Delay
) -> None:
    long = asyncio.create_task(status_of(single, PATH, LARGE))
    await eventually(lambda: single.gateway.render_offload._vacated.held > 0)
    long.cancel()
    delay.may_end.set()
    await eventually(lambda: embedder(single).is_idle)
    assert taken(embedder(single)) == embedder(single).load_shedder.tokens == 0
    [event] = await single.booked()
    assert event.input_tokens > 0


async def test_others_have_the_slot_while_the_journal_waits_for_its_disk(
    single: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, is_writing, write = threading.Event(), threading.Event(), JournalWriter._write

    def slow(self: JournalWriter, batch: Any) -> Any:
        is_writing.set()
        disk.wait(60.0)
        return write(self, batch)

    monkeypatch.setattr(JournalWriter, "_write", slow)
    pool = single.gateway.directory.pools["dep_var_demo"]
    asked = [asyncio.create_task(status_of(single, "/v1/chat/completions", CHAT)) for _ in "12345"]
    try:
        await eventually(lambda: pool.choices.total() == len(asked) and taken(pool) == 0)
        assert is_writing.wait(60.0)
        assert not any(task.done() for task in asked)
    finally:
        disk.set()
    assert await asyncio.gather(*asked) == [200] * len(asked)


async def test_slow_readers_of_ended_answers_hold_no_slot(single: Stack) -> None:
    async with AsyncExitStack() as readers:
        for number in range(1, READERS + 1):
            client = await readers.enter_async_context(RawClient(single.url, receive_bytes=2_048))
            await client.send(request(PATH, single.tenant.secret, LARGE))
            await client.read(1)
            await eventually(lambda: taken(embedder(single)) == 0)
            assert single.gateway.app.in_flight == number
        assert await status_of(single, PATH, SMALL) == 200
        assert single.gateway.app.in_flight == READERS


def test_what_waits_without_slots_is_bounded() -> None:
    made = RenderOffload()
    calls: list[str] = []
    size = render_offload.VACATED_BYTES_MAX // 2
    with (
        made.without_slots(SlotRequest("a"), size, lambda: calls.append("a")),
        made.without_slots(SlotRequest("a"), 1, lambda: calls.append("a again")),
        made.without_slots(SlotRequest("b"), size // 2, lambda: calls.append("b")),
    ):
        assert calls == ["a", "b"]
    assert made._vacated.held == 0
