"""However requests end, in whatever order and at once: when nothing runs, nothing is held."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.engine.simulated.settings import Fault
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
BALANCE = "balance:org_a"
BODY: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 24, "ignore_eos": True}
WORST = 512 * 150 + 24 * 600
TOOL = {"type": "function", "function": {"name": "open_gate", "parameters": {"type": "object"}}}
QUICK = msgspec.structs.replace(catalog.TIMEOUTS, queue_seconds=0.2)
Ask = Callable[[Stack, dict[str, Any]], Awaitable[None]]


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """Two engines that take their time, and a second model that has no price."""
    async with running_stack(tmp_path, engines=2, itl_seconds=0.001) as stack:
        feed, url = stack.control.feed, f"http://127.0.0.1:{stack.engines[0].port}"
        feed.publish("deployment", "dep_var_demo", catalog.deployment(timeouts=QUICK))
        feed.publish("model", "var_free", catalog.model("var_free", "demo-free"))
        feed.publish("deployment", "dep_var_free", catalog.deployment("var_free"))
        record = catalog.replica(url, 9, "var_free")
        stack.control.fleet.publish("replica", record.replica_id, record)
        pools = stack.gateway.directory.pools
        await eventually(
            lambda: "dep_var_free" in pools and pools["dep_var_free"].has_ready_replica
        )
        yield stack


async def ask(stack: Stack, body: dict[str, Any]) -> Any:
    async with stack.post(CHAT, BODY | body) as reply:
        return reply.status, await reply.read()


def meeting(kind: Literal["reset", "die", "error_chunk", "error"], *, engines: int) -> Ask:
    """A request, or whoever comes before it, that meets a fault of so many engines."""

    async def meet(stack: Stack, body: dict[str, Any]) -> None:
        for engine in stack.engines[:engines]:
            engine.script.add(Fault(kind, after_chunks=3))
        await ask(stack, body)

    return meet


async def hang_up_at_once(stack: Stack, body: dict[str, Any]) -> None:
    async with RawClient(stack.url) as client:
        await client.send(request(CHAT, stack.tenant.secret, BODY | body))


async def hang_up_midway(stack: Stack, body: dict[str, Any]) -> None:
    async with stack.post(CHAT, BODY | body | {"stream": True}) as reply:
        await reply.content.readline()


async def loop_with_tools(stack: Stack, body: dict[str, Any]) -> None:
    tools = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 40}
    status, data = await ask(stack, tools)
    if status != 200:
        return
    said = msgspec.json.decode(data)["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "open"}
        for call in said.get("tool_calls") or ()
    ]
    await ask(stack, body | tools | {"messages": [*MESSAGES, said, *results]})


ENDINGS: dict[str, Ask] = {
    "served": ask,
    "wide": lambda stack, body: ask(stack, body | {"n": 3}),
    "tool loop": loop_with_tools,
    "hang-up at once": hang_up_at_once,
    "hang-up of a wide one": lambda stack, body: hang_up_at_once(stack, body | {"n": 3}),
    "hang-up midway": hang_up_midway,
    "refused by us": lambda stack, body: ask(stack, body | {"max_tokens": 10**6}),
    "refused by the engine": lambda stack, body: ask(
        stack, body | {"messages": [{"role": "user", "content": "long " * 900}]}
    ),
    "unpriced tier": lambda stack, body: ask(stack, body | {"service_tier": "flex"}),
    "unpriced model": lambda stack, body: ask(stack, body | {"model": "demo-free"}),
    "retried": meeting("reset", engines=1),
    "engine failed": meeting("error", engines=2),
    "engine death": meeting("die", engines=2),
    "engine error amid": meeting("error_chunk", engines=1),
}
CASES = st.lists(
    st.tuples(st.sampled_from(sorted(ENDINGS)), st.booleans(), st.sampled_from([0.0, 0.004])),
    min_size=1,
    max_size=8,
)


async def must_hold_nothing(stack: Stack) -> None:
    gateway = stack.gateway
    events = await stack.booked()
    for engine in stack.engines:
        engine.script.clear()
        await eventually(lambda engine=engine: engine.engine.slots_used == 0)
    assert gateway.lease_manager.held_nanos() == 0
    assert [lease.held_nanos for lease in gateway.poll.leases.values() if lease.held_nanos] == []
    assert not any(balance.has_waiters for balance in gateway.lease_manager.all_balances())
    pools = gateway.directory.pools.values()
    assert {one.in_flight for pool in pools for one in pool.replicas.values()} == {0}
    # What was charged is what was booked, to the nano.
    charged = sum(charge.charged_nanos for event in events for charge in event.charges)
    assert charged == sum(stack.control.billing.books.posted.values())


async def run(stack: Stack, cases: list[tuple[str, bool, float]], holds: int) -> None:
    """Let the cases come one after the other, each beside those that are not over yet, with money
    for so many at once."""
    billing = stack.control.billing
    billing.limits[BALANCE] = sum(billing.books.posted.values()) + holds * WORST
    under_way = []
    for name, streamed, pause_seconds in cases:
        under_way.append(asyncio.ensure_future(ENDINGS[name](stack, {"stream": streamed})))
        await asyncio.sleep(pause_seconds)
    await asyncio.gather(*under_way)
    await must_hold_nothing(stack)


EACH_ONCE = [(name, streamed, 0.0) for name in sorted(ENDINGS) for streamed in (False, True)]


async def test_nothing_is_held_after_every_kind_of_ending_at_once(stack: Stack) -> None:
    # Who waits for a slot waits until there is one.
    feed, mirror = stack.control.feed, stack.gateway.directory.mirror
    feed.publish("deployment", "dep_var_demo", catalog.deployment())
    await eventually(lambda: mirror.version == feed.version)
    await run(stack, EACH_ONCE, holds=100)
    # Who hangs up on a busy machine may find the answer complete, and whoever comes first meets a
    # fault; these two are sure.
    assert {event.outcome for event in stack.events} >= {"completed", "refused_by_engine"}


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(CASES, st.integers(0, 4))
async def test_nothing_is_held_whatever_the_order(
    stack: Stack, cases: list[tuple[str, bool, float]], holds: int
) -> None:
    await run(stack, cases, holds)


@pytest.mark.full
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(CASES, st.integers(0, 4))
async def test_nothing_is_held_whatever_the_order_of_many(
    stack: Stack, cases: list[tuple[str, bool, float]], holds: int
) -> None:
    await run(stack, cases, holds)
