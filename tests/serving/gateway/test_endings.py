"""However a request ends: the right answer, the right outcome, no money left held."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from serving.contract.usage import Outcome
from serving.engine.request import WHOLE_INTERVAL_TOKENS
from serving.engine.simulated.settings import Fault
from serving.gateway.cancel_scope import CancelScope
from serving.pool.slot_request import SlotRequest
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 200, "ignore_eos": True}
CHAT = "/v1/chat/completions"
GATES = {f"g{number}": {"type": "string"} for number in range(20)}
PARAMETERS = {"type": "object", "properties": GATES}
TOOLS = [{"type": "function", "function": {"name": "open_gates", "parameters": PARAMETERS}}]
"""A function whose call takes a while to write."""


@pytest.fixture
async def paced(tmp_path: Path) -> AsyncIterator[Stack]:
    """A stack whose engine takes 5 ms a token."""
    async with running_stack(tmp_path, itl_seconds=0.005) as running:
        yield running


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Stack]:
    """A stack with two replicas."""
    async with running_stack(tmp_path, engines=2, itl_seconds=0.001) as running:
        yield running


async def must_end(stack: Stack, outcome: Outcome) -> None:
    event = await stack.one_event()
    assert event.outcome == outcome
    assert bool(event.charges) == (outcome in ("completed", "client_cancelled"))
    await eventually(lambda: stack.gateway.lease_manager.held_nanos() == 0)
    assert all(r.in_flight == 0 for r in replicas(stack))


def replicas(stack: Stack) -> list:
    return list(stack.gateway.directory.pools["dep_var_demo"].replicas.values())


def data_lines(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.splitlines() if line]


async def test_a_client_that_hangs_up_pays_for_what_was_generated(paced: Stack) -> None:
    async with paced.post(CHAT, ASK | {"stream": True}) as reply:
        for _ in range(12):
            await reply.content.readuntil(b"\n\n")
    await must_end(paced, "client_cancelled")
    event = paced.events[0]
    engine = paced.engines[0].engine
    assert 10 <= event.output_tokens <= 20
    assert event.input_tokens > 0
    await eventually(lambda: engine.slots_used == 0)
    assert engine.counts["generation_tokens"] < ASK["max_tokens"]


@pytest.mark.parametrize("body", [{}, {"n": 2}], ids=["one", "two"])
async def test_hanging_up_on_a_whole_answer_pays_for_it_to_within_a_chunk(
    paced: Stack, body: dict[str, int]
) -> None:
    engine, choices = paced.engines[0].engine, body.get("n", 1)
    async with RawClient(paced.url) as client:
        await client.send(request(CHAT, paced.tenant.secret, ASK | body))
        await eventually(lambda: engine.counts["generation_tokens"] >= 40 * choices)
    await must_end(paced, "client_cancelled")
    await eventually(lambda: engine.slots_used == 0)
    event = paced.events[0]
    generated = engine.counts["generation_tokens"] // choices
    assert generated < ASK["max_tokens"]
    # The engine hears of it a step later.
    told_at_least = generated - (WHOLE_INTERVAL_TOKENS - 1) - 2
    assert choices * told_at_least <= event.output_tokens <= choices * generated
    assert event.output_tokens > 0
    assert event.input_tokens == engine.counts["prompt_tokens"] // choices
    assert event.charges[0].charged_nanos > 0
    assert event.ttft_seconds is not None


async def test_hanging_up_on_streamed_tool_calls_pays_for_what_was_generated(paced: Stack) -> None:
    async with paced.post(CHAT, ASK | {"tools": TOOLS, "stream": True}) as reply:
        for _ in range(12):
            await reply.content.readuntil(b"\n\n")
    await must_end(paced, "client_cancelled")
    assert 10 <= paced.events[0].output_tokens <= 20


async def test_an_engine_that_dies_midway_of_a_whole_answer_is_replaced(pair: Stack) -> None:
    pair.engines[0].script.add(Fault("die", after_chunks=30))
    async with pair.post(CHAT, ASK | {"max_tokens": 60}) as reply:
        answer = await reply.json()
    assert reply.status == 200
    assert answer["usage"]["completion_tokens"] == 60
    await must_end(pair, "completed")
    assert pair.events[0].output_tokens == 60
    assert pair.gateway.metrics.retries == 1


@pytest.mark.parametrize("kind", ["die", "error_chunk"])
async def test_a_whole_answer_that_no_engine_ends_is_503_and_waived(
    pair: Stack, kind: Literal["die", "error_chunk"]
) -> None:
    for engine in pair.engines:
        engine.script.add(Fault(kind, after_chunks=3))
    async with pair.post(CHAT, ASK) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (503, "model_unavailable")
    await must_end(pair, "engine_failed")


async def test_an_engine_that_dies_midway_ends_the_stream_with_one_error(paced: Stack) -> None:
    paced.engines[0].script.add(Fault("die", after_chunks=3))
    async with paced.post(CHAT, ASK | {"stream": True}) as reply:
        lines = data_lines(await reply.text())
    assert reply.status == 200
    assert "[DONE]" not in lines
    assert sum('"error"' in line for line in lines) == 1
    assert set(json.loads(lines[-1])["error"]) == {"message", "type", "param", "code"}
    await must_end(paced, "engine_failed")


async def test_an_error_chunk_followed_by_done_is_no_ending(paced: Stack) -> None:
    paced.engines[0].script.add(Fault("error_chunk", after_chunks=3))
    async with paced.post(CHAT, ASK | {"stream": True}) as reply:
        lines = data_lines(await reply.text())
    assert "[DONE]" not in lines
    assert sum('"error"' in line for line in lines) == 1
    await must_end(paced, "engine_failed")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["reset", "error"])
async def test_a_failure_before_the_first_byte_is_tried_on_another_replica(
    pair: Stack, kind: str, stream: bool
) -> None:
    pair.engines[0].script.add(Fault(kind, status=500))  # type: ignore[arg-type]
    async with pair.post(CHAT, ASK | {"stream": stream, "max_tokens": 3}) as reply:
        assert reply.status == 200
        await reply.read()
    await must_end(pair, "completed")
    assert pair.gateway.metrics.retries == 1


async def test_a_failure_is_tried_again_though_another_organization_has_used_up_its_tries(
    pair: Stack,
) -> None:
    retries = pair.gateway.app.inference.services.retries
    while retries.take("org_b"):
        pass
    pair.engines[0].script.add(Fault("reset"))
    async with pair.post(CHAT, ASK | {"max_tokens": 3}) as reply:
        assert reply.status == 200
    await must_end(pair, "completed")
    assert pair.gateway.metrics.retries == 1


async def test_a_second_try_may_wait_for_its_turn_longer_than_for_a_first_byte(
    pair: Stack,
) -> None:
    pool = pair.gateway.directory.pools["dep_var_demo"]
    pair.engines[0].script.add(Fault("error", status=500))
    all_of_it = SlotRequest("org_b", sequences=pool.replicas["rep_2"].share)
    async with pool.slot(all_of_it, excluded=["rep_1"]):
        asked = asyncio.create_task(answered(pair))
        await eventually(lambda: pair.gateway.metrics.retries == 1)
        await eventually(lambda: len(pool.queue) == 1)
        [attempts] = pair.gateway.app.inference.running
        Later.pass_for(attempts.cancel_scope, catalog.TIMEOUTS.first_byte_seconds + 1)
    assert await asked == 200
    await must_end(pair, "completed")


class Later:
    """The event loop as it is so many seconds later: what the deadlines of one request go by."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds

    @classmethod
    def pass_for(cls, interrupts: CancelScope, seconds: float) -> None:
        """Let time pass for a request, and have it look at its deadlines."""
        interrupts._loop = cls(interrupts._loop, seconds)  # type: ignore[assignment]
        interrupts._look()

    def time(self) -> float:
        return self._loop.time() + self._seconds

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when - self._seconds, callback)


async def answered(stack: Stack, *, stream: bool = True) -> int:
    async with stack.post(CHAT, ASK | {"stream": stream, "max_tokens": 3}) as reply:
        await reply.read()
        return reply.status


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_failed_replica_has_not_answered_is_tried_on_another(
    pair: Stack, stream: bool
) -> None:
    engines = [one.engine for one in pair.engines]
    for engine in engines:
        engine.freeze(True)
    asked = asyncio.create_task(answered(pair, stream=stream))
    await eventually(lambda: any(engine.running for engine in engines))
    lost = 1 if engines[0].running else 2
    await fails(pair, lost)
    await eventually(lambda: pair.gateway.metrics.retries == 1)
    engines[2 - lost].freeze(False)
    assert await asked == 200
    await must_end(pair, "completed")
    assert pair.events[0].replica_id == f"rep_{3 - lost}"


async def test_what_has_a_token_or_nowhere_to_go_stays_with_a_failed_replica(pair: Stack) -> None:
    for engine in pair.engines:
        engine.script.add(Fault("stall", after_chunks=3, seconds=0.5))
    async with pair.post(CHAT, ASK | {"stream": True, "max_tokens": 12}) as reply:
        await reply.content.readuntil(b"\n\n")
        await reply.content.readuntil(b"\n\n")
        await fails(pair, 1)
        await fails(pair, 2)
        assert "[DONE]" in await reply.text()
    assert pair.gateway.metrics.retries == 0


async def fails(stack: Stack, number: int) -> None:
    """The fleet calls a replica failed."""
    [known] = [one.record for one in replicas(stack) if one.record.replica_id == f"rep_{number}"]
    failed = msgspec.structs.replace(known, state="failed")
    stack.control.fleet.publish("replica", failed.replica_id, failed)
    await eventually(lambda: failed in [one.record for one in replicas(stack)])


async def test_a_replica_that_refuses_connections_is_left_alone_after_a_while(pair: Stack) -> None:
    await pair.engines[0].stop()
    for _ in range(12):
        async with pair.post(CHAT, ASK | {"max_tokens": 2}) as reply:
            assert reply.status == 200
    assert {event.replica_id for event in pair.events} <= {"rep_2"}
    assert replicas(pair)[0].consecutive_failures >= 2


async def test_when_no_replica_answers_the_client_is_told_to_come_back(stack: Stack) -> None:
    stack.engines[0].script.add(Fault("reset", times=4))
    async with stack.post(CHAT, ASK) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (503, "model_unavailable")
    assert "retry-after" in reply.headers
    await must_end(stack, "engine_failed")


async def test_a_deployment_without_a_ready_replica_is_503(stack: Stack) -> None:
    stack.control.fleet.publish("replica", "rep_1", None)
    await eventually(lambda: not replicas(stack))
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 503
        assert (await reply.json())["error"]["code"] == "model_unavailable"
    assert stack.gateway.lease_manager.held_nanos() == 0


async def test_an_engine_that_stalls_is_cut_off_and_waived(stack: Stack) -> None:
    quick = catalog.deployment(
        timeouts=catalog.DeploymentTimeouts(gap_seconds=0.2, first_byte_seconds=0.2)
    )
    stack.control.feed.publish("deployment", "dep_var_demo", quick)
    await eventually(
        lambda: (
            stack.gateway.directory.deployments("var_demo", stack.tenant.organization)[0] == quick
        )
    )
    stack.engines[0].script.add(Fault("stall", after_chunks=2, seconds=30))
    async with stack.post(CHAT, ASK | {"stream": True}) as reply:
        lines = data_lines(await reply.text())
    assert json.loads(lines[-1])["error"]["type"] == "timeout"
    await must_end(stack, "timed_out")


async def test_an_engine_that_never_answers_is_504(stack: Stack) -> None:
    quick = catalog.deployment(timeouts=catalog.DeploymentTimeouts(first_byte_seconds=0.2))
    stack.control.feed.publish("deployment", "dep_var_demo", quick)
    await eventually(
        lambda: (
            stack.gateway.directory.deployments("var_demo", stack.tenant.organization)[0] == quick
        )
    )
    stack.engines[0].script.add(Fault("hang", seconds=30))
    async with stack.post(CHAT, ASK | {"stream": True}) as reply:
        assert reply.status == 504
    await must_end(stack, "timed_out")


async def test_what_an_engine_says_is_never_shown(stack: Stack) -> None:
    stack.engines[0].script.add(Fault("error", status=400, times=1))
    async with stack.post(CHAT, ASK) as reply:
        text = await reply.text()
    assert reply.status == 400
    assert "imulated" not in text
    assert "0x" not in text
    await must_end(stack, "refused_by_engine")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_inside_a_stream_is_400_and_no_replicas_fault(
    pair: Stack, stream: bool
) -> None:
    pair.engines[0].script.add(Fault("error_chunk", status=400))
    async with pair.post(CHAT, ASK | {"stream": stream}) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (400, "unsupported_value")
    await must_end(pair, "refused_by_engine")
    assert pair.gateway.metrics.retries == 0
    assert replicas(pair)[0].consecutive_failures == 0


async def test_a_prompt_longer_than_the_context_is_400(stack: Stack) -> None:
    long = [{"role": "user", "content": "word " * 3_000}]
    async with stack.post(CHAT, ASK | {"messages": long}) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["code"], error["param"]) == (
        400,
        "context_length_exceeded",
        "messages",
    )
    numbers = r"at least 395\d tokens \(at least 375\d in the messages, 200 in the completion\)"
    assert re.search(numbers, error["message"])


async def test_a_gateway_that_stops_lets_streams_finish(paced: Stack) -> None:
    async with paced.post(CHAT, ASK | {"stream": True, "max_tokens": 60}) as reply:
        await reply.content.readuntil(b"\n\n")
        stopping = asyncio.create_task(paced.stop_listening())
        text = (await reply.content.read()).decode()
        await stopping
    assert data_lines(text)[-1] == "[DONE]"
