"""Who leaves before an engine has said what it took pays for it all the same."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from serving.contract.slot_shares import NEVER_PAID
from serving.engine.simulated.settings import Fault
from serving.engine.simulated.tokens import count_of, prompt_of_text
from serving.gateway import attempt, count_tokens
from serving.gateway.count_tokens import PromptCounts
from serving.gateway.dialects.routes import GENERATING
from serving.gateway.relay import DisconnectDrain
from serving.pool.overload import SharedCapacity
from serving.pool.slot_request import SlotRequest
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "model": "demo",
    "messages": MESSAGES,
    "max_tokens": 200,
    "ignore_eos": True,
}
GATES = {f"g{number}": {"type": "string"} for number in range(12)}
FUNCTION = {"name": "open_gates", "parameters": {"type": "object", "properties": GATES}}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}


@pytest.fixture
async def slow_start(tmp_path: Path) -> AsyncIterator[Stack]:
    """A stack whose engine takes some tenths of a second to its first token."""
    async with running_stack(
        tmp_path, itl_seconds=0.005, prefill_tokens_per_second=100, models=("var_demo",)
    ) as running:
        yield running


async def is_left(stack: Stack) -> None:
    """Wait until an engine that is frozen works for nobody, and let it go on."""
    await eventually(lambda: stack.gateway.disconnect_drain.total == 1)
    engine_of(stack).freeze(False)


@asynccontextmanager
async def leaving(stack: Stack, body: dict[str, Any]) -> AsyncIterator[None]:
    """Ask, and hang up at the end."""
    async with RawClient(stack.url) as client:
        await client.send(request(CHAT, stack.tenant.secret, ASK | body))
        yield


async def hung_up(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    """Ask an engine that never says a word, and leave."""
    monkeypatch.setattr(attempt, "LINGER_SECONDS", 0.2)
    script = stack.engines[0].script
    script.add(Fault("hang"))
    asked = body if path != CHAT else ASK | body
    async with RawClient(stack.url) as client:
        await client.send(request(path, stack.tenant.secret, asked))
        await eventually(lambda: not script._coming)


async def last_event(stack: Stack, count: int) -> Any:
    await eventually(lambda: len(stack.events) == count)
    return stack.events[-1]


def engine_of(stack: Stack) -> Any:
    return stack.engines[0].engine


async def at_work(stack: Stack, count: int = 1) -> None:
    engine = engine_of(stack)
    await eventually(lambda: len(engine.running) + len(engine.waiting) == count)


def unmetered(stack: Stack) -> float:
    return stack.gateway.metrics.unmetered


async def must_be_idle(stack: Stack) -> None:
    await eventually(lambda: engine_of(stack).slots_used == 0)
    await eventually(lambda: stack.gateway.lease_manager.held_nanos() == 0)
    await eventually(lambda: stack.gateway.app.in_flight == 0)
    assert stack.gateway.disconnect_drain.total == 0


@pytest.mark.parametrize(
    "body",
    [{"stream": True}, {}, {"n": 2}, TOOLS, TOOLS | {"stream": True}],
    ids=["stream", "whole", "two", "tools", "tools streamed"],
)
async def test_hanging_up_before_the_first_token_pays_for_the_prefill(
    slow_start: Stack, body: dict[str, Any]
) -> None:
    engine_of(slow_start).freeze(True)
    async with leaving(slow_start, body):
        await at_work(slow_start)
    await is_left(slow_start)
    event = await slow_start.one_event()
    assert event.outcome == "client_cancelled"
    assert event.input_tokens == engine_of(slow_start).counts["prompt_tokens"] // body.get("n", 1)
    assert event.charges[0].charged_nanos >= event.input_tokens * 150
    assert event.ttft_seconds is not None
    # It was aborted with the first token, not served to the end.
    assert engine_of(slow_start).counts["generation_tokens"] < 20
    assert unmetered(slow_start) == 0
    await must_be_idle(slow_start)


@pytest.mark.parametrize("body", [{"stream": True}, TOOLS], ids=["stream", "tools"])
async def test_where_an_engine_says_nothing_in_time_its_tokenizer_counts_the_prompt(
    slow_start: Stack, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    async with slow_start.post(CHAT, ASK | body | {"stream": False, "max_tokens": 1}) as reply:
        prompt_tokens = (await reply.json())["usage"]["prompt_tokens"]
    await hung_up(slow_start, monkeypatch, CHAT, body)
    event = await last_event(slow_start, 2)
    assert (event.outcome, event.input_tokens) == ("client_cancelled", prompt_tokens)
    assert sum(part.charged_nanos for part in event.charges) == 150 * prompt_tokens
    assert unmetered(slow_start) == 0
    await must_be_idle(slow_start)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("A penstock is", None), (["one", "two and three"], None), ([1, 2, 3], 3), ([[1, 2], [3]], 3)],
    ids=["text", "texts", "ids", "lists"],
)
async def test_prompts_of_completions_are_counted_too(
    slow_start: Stack, monkeypatch: pytest.MonkeyPatch, prompt: Any, tokens: int | None
) -> None:
    body = {"model": "demo", "prompt": prompt}
    await hung_up(slow_start, monkeypatch, "/v1/completions", body)
    event = await last_event(slow_start, 1)
    texts = [prompt] if isinstance(prompt, str) else prompt
    wanted = tokens or sum(count_of(prompt_of_text(text)) for text in texts)
    assert (event.outcome, event.input_tokens) == ("client_cancelled", wanted)


async def test_where_nobody_counts_that_is_counted(
    slow_start: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes = slow_start.engines[0]._routes
    del routes["POST", "/tokenize"]
    await hung_up(slow_start, monkeypatch, CHAT, {"stream": True})
    event = await last_event(slow_start, 1)
    assert (event.outcome, event.input_tokens, event.charges) == ("client_cancelled", 0, ())
    assert unmetered(slow_start) == 1
    await must_be_idle(slow_start)


async def test_no_organization_keeps_more_than_its_share_of_abandoned_work(
    slow_start: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_start.gateway.disconnect_drain, "_room", SharedCapacity(2))
    async with leaving(slow_start, {}), leaving(slow_start, {}), leaving(slow_start, {}):
        await at_work(slow_start, 3)
    await eventually(lambda: len(slow_start.events) == 3)
    # The others are let go at once, and pay what the tokenizer counts.
    assert len({event.input_tokens for event in slow_start.events}) == 1
    assert all(event.charges for event in slow_start.events)
    assert unmetered(slow_start) == 0
    await must_be_idle(slow_start)


def test_all_that_never_paid_keep_as_much_of_it_as_one_and_leave_a_part_to_each_other() -> None:
    drain = DisconnectDrain()
    kept = sum(drain.enter(SlotRequest(f"new_{n % 50}", is_paying=False)) for n in range(500))
    assert kept == 32
    drain = DisconnectDrain()
    assert sum(drain.enter(SlotRequest("new_1", is_paying=False)) for _ in range(500)) == 21
    assert drain.enter(SlotRequest("new_2", is_paying=False))
    assert sum(drain.enter(SlotRequest("neighbour")) for _ in range(500)) == 21


@pytest.mark.parametrize("comes", ["before", "after"])
async def test_a_neighbour_has_the_slot_of_a_request_whose_client_left(
    tmp_path: Path, comes: str
) -> None:
    """The engine never says a word to who leaves, and a request may go on for a minute."""
    async with running_stack(tmp_path, models=("var_demo",)) as stack:
        neighbour, url = catalog.tenant("b"), f"http://127.0.0.1:{stack.engines[0].port}"
        stack.control.fleet.publish("replica", "rep_1", catalog.replica(url, slots=2))
        catalog.publish(stack.control, neighbour)
        known = stack.gateway.directory.authenticator
        await eventually(lambda: known.find(neighbour.key.digest))
        pool, script = stack.gateway.directory.pools["dep_var_demo"], stack.engines[0].script
        [replica] = pool.replicas.values()
        await eventually(lambda: replica.share == 2)
        script.add(Fault("hang", times=2))
        wire = request(CHAT, neighbour.secret, ASK | {"max_tokens": 2})
        async with RawClient(stack.url) as client:
            async with leaving(stack, {}), leaving(stack, {"stream": True}):
                await eventually(lambda: not script._coming)
                assert replica.in_flight == 2
                if comes == "before":
                    await client.send(wire)
                    await eventually(lambda: len(pool.queue) == 1)
            if comes == "after":
                await eventually(lambda: stack.gateway.disconnect_drain.total == 2)
                await client.send(wire)
            assert b"200 OK" in await client.read(seconds=30.0)
        events = await stack.booked()
        left = [one for one in events if one.key_id == stack.tenant.key.key_id]
        # Its tokenizer counts what the engine did not say.
        assert {(one.outcome, one.input_tokens > 0) for one in left} == {("client_cancelled", True)}
        assert len(left) == 2
        await must_be_idle(stack)


async def test_prompts_are_counted_two_at_a_time_of_each_organization(
    slow_start: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, most, may_end = 0, 0, asyncio.Event()

    async def ask(*_: object) -> int:
        nonlocal under_way, most
        under_way, most = under_way + 1, max(most, under_way + 1)
        await may_end.wait()
        under_way -= 1
        return 7

    monkeypatch.setattr(count_tokens, "_ask", ask)
    monkeypatch.setattr(count_tokens, "COUNTS_WAITING_MAX", 5)
    counts = PromptCounts(slow_start.gateway.client)
    dialect, body = GENERATING[CHAT], json.dumps(ASK).encode()
    inference = dialect.inference(dialect.decode(body), body_bytes=len(body), model=catalog.model())

    def count(tenant_id: str) -> "asyncio.Task[int | None]":
        of = counts.count(
            *(tenant_id, catalog.replica(slow_start.url), inference.engine_request),
            served_name="var_demo",
            request_id="req_1",
            connect_seconds=1.0,
        )
        return asyncio.create_task(of)

    flood = [count(NEVER_PAID) for _ in range(6)]
    await eventually(lambda: under_way == 2)
    assert await flood[-1] is None
    neighbour = count("org_b")
    await eventually(lambda: under_way == 3)
    may_end.set()
    assert await neighbour == 7
    assert await asyncio.gather(*flood) == [7] * 5 + [None]
    assert (most, counts._turns) == (3, {})


async def test_an_engine_that_fails_abandoned_work_is_not_asked_again(slow_start: Stack) -> None:
    slow_start.engines[0].script.add(Fault("die", after_chunks=0))
    engine_of(slow_start).freeze(True)
    async with leaving(slow_start, {"stream": True}):
        await at_work(slow_start)
    await is_left(slow_start)
    event = await slow_start.one_event()
    assert (event.outcome, event.charges) == ("engine_failed", ())
    assert slow_start.gateway.metrics.retries == 0
    await must_be_idle(slow_start)


async def test_who_leaves_while_waiting_for_a_slot_owes_nothing_and_waits_no_more(
    tmp_path: Path,
) -> None:
    async with running_stack(tmp_path, itl_seconds=0.005, slots=1) as stack:
        [replica] = stack.gateway.directory.pools["dep_var_demo"].replicas.values()
        replica.in_flight = replica.record.slots
        async with leaving(stack, {}):
            await eventually(lambda: len(stack.gateway.directory.pools["dep_var_demo"].queue) == 1)
        await must_be_idle(stack)
        assert stack.events == []
        replica.in_flight = 0
