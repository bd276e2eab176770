"""Conversations go to the replica that knows them, whichever gateway they come through."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.exposition import generate_latest

from serving.gateway.prefix_sync import CHANNEL
from tests.fixtures import catalog
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import Stack
from tests.fixtures.redis_server import running_redis
from tests.fixtures.waiting import eventually

REPLICAS = 4
CONTEXT_TOKENS = 4_096
TENANTS = [catalog.tenant(name) for name in ("a", "b")]
POOL = "dep_var_demo"


@asynccontextmanager
async def gateways(folder: Path, count: int) -> AsyncIterator[list[Stack]]:
    """Gateways on one control, one Redis and one fleet of four replicas."""
    control = FakeControl()
    async with AsyncExitStack() as exits:
        redis = exits.enter_context(running_redis(folder))
        await exits.enter_async_context(control.serving())
        catalog.publish(control, *TENANTS)
        model = msgspec.structs.replace(catalog.model(), context_tokens=CONTEXT_TOKENS)
        control.feed.publish("model", "var_demo", model)
        stacks = [
            Stack(control, folder / str(number), TENANTS[0], redis_url=redis.url)
            for number in range(count)
        ]
        for _ in range(REPLICAS):
            engine = await stacks[0].start_engine(context_tokens=CONTEXT_TOKENS)
            exits.push_async_callback(engine.stop)
        for stack in stacks:
            stack.engines = stacks[0].engines
            await stack.start_gateway()
            exits.push_async_callback(stack.stop_gateway)
            await stack.ready()
        for stack in stacks:
            await eventually(lambda stack=stack: shares(stack) == [8 // count] * REPLICAS)
        await eventually(lambda: redis.client.pubsub_numsub(CHANNEL)[0][1] == count)
        yield stacks


def shares(stack: Stack) -> list[int]:
    pool = stack.gateway.directory.pools.get(POOL)
    return [] if pool is None else [one.share for one in pool.replicas.values()]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[list[Stack]]:
    async with gateways(tmp_path, 2) as stacks:
        yield stacks


def conversation(number: int, turns: int) -> list[dict[str, str]]:
    """Return the messages of a conversation at its turn of that number."""
    said = [
        {"role": role, "content": f"{number}: what {role} said in turn {turn}. " * 20}
        for turn in range(turns)
        for role in ("user", "assistant")
    ]
    return said[:-1]


async def say(stack: Stack, messages: Any, tenant: catalog.Tenant = TENANTS[0]) -> int:
    """Say a turn, and return how many of its tokens were cached."""
    body = {"model": "demo", "messages": messages, "max_tokens": 2}
    headers = {"authorization": f"Bearer {tenant.secret}"}
    async with stack.post("/v1/chat/completions", body, headers) as reply:
        answer = await reply.json()
        assert reply.status == 200, answer
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompts_of(stack: Stack) -> list[int]:
    """Return how many prompts' tokens each replica has looked up."""
    return [engine.engine.counts["prefix_cache_queries"] for engine in stack.engines]


async def test_a_conversation_keeps_its_replica_across_gateways(pair: list[Stack]) -> None:
    for number in range(8):
        before, cached = prompts_of(pair[0]), []
        for turn in range(1, 5):
            other = pair[1 - turn % 2].gateway.prefix_news
            heard = other.received
            cached.append(await say(pair[turn % 2], conversation(number, turn)))
            await eventually(lambda heard=heard, other=other: other.received > heard)
        grown = [now > was for now, was in zip(prompts_of(pair[0]), before, strict=True)]
        assert sum(grown) == 1, "it went to one replica"
        assert cached[0] == 0
        assert cached == sorted(set(cached)), "each turn finds the one before"
    assert sum(count > 0 for count in prompts_of(pair[0])) > 1, "not all went to the same"


async def test_another_organization_finds_and_moves_nothing(pair: list[Stack]) -> None:
    said = conversation(1, 3)
    for _ in range(3):
        await say(pair[0], said)
    assert await say(pair[0], said) > 0
    assert await say(pair[0], said, TENANTS[1]) == 0
    choices = pair[0].gateway.directory.pools[POOL].choices
    assert choices["load"] == 2, "the second organization's prompt was new to all replicas"


async def test_metrics_say_why_replicas_were_chosen(pair: list[Stack]) -> None:
    for turn in (1, 2, 3):
        await say(pair[0], conversation(5, turn))
    page = generate_latest(pair[0].gateway.metrics.registry).decode()
    assert f'penstock_gateway_routed_total{{deployment="{POOL}",why="load"}} 1.0' in page
    assert f'penstock_gateway_routed_total{{deployment="{POOL}",why="affinity"}} 2.0' in page
    assert f'penstock_gateway_prefix_blocks{{deployment="{POOL}"}}' in page
