"""A model on two deployments: who waits goes on in the first that has a slot."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from unittest.mock import ANY

import msgspec
import pytest

from serving.gateway import gateway
from serving.pool.pool import Pool
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
LONG = {"model": "demo", "messages": MESSAGES, "max_tokens": 250, "ignore_eos": True}
SHORT = LONG | {"max_tokens": 3}


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Stack]:
    """A stack with two deployments of one slot each."""
    async with running_stack(tmp_path, itl_seconds=0.02) as stack:
        url = f"http://127.0.0.1:{stack.engines[0].port}"
        for number, name in ((1, "dep_var_demo"), (2, "dep_other")):
            deployment = msgspec.structs.replace(catalog.deployment(), deployment_id=name)
            replica = catalog.replica(url, number, slots=1)
            record = msgspec.structs.replace(replica, deployment_id=name)
            stack.control.feed.publish("deployment", name, deployment)
            stack.control.fleet.publish("replica", record.replica_id, record)
        await eventually(
            lambda: (
                [sum(one.share for one in pool.replicas.values()) for pool in pools(stack)]
                == [1, 1]
            )
        )
        yield stack


def pools(stack: Stack) -> list[Pool]:
    return list(stack.gateway.directory.pools.values())


def taken(stack: Stack) -> list[int]:
    return [sum(one.in_flight for one in pool.replicas.values()) for pool in pools(stack)]


async def ask(stack: Stack, path: str, body: Mapping[str, object]) -> tuple[int, object]:
    async with stack.post(path, body) as reply:
        return reply.status, await reply.json()


@pytest.mark.parametrize("frees", [0, 1])
async def test_who_waits_goes_on_where_a_slot_is_free_first(both: Stack, frees: int) -> None:
    async with AsyncExitStack() as opened:
        streams = [AsyncExitStack(), AsyncExitStack()]
        for stream in streams:
            opened.push_async_exit(stream)
            reply = await stream.enter_async_context(both.post(CHAT, LONG | {"stream": True}))
            await reply.content.readline()
        assert taken(both) == [1, 1]
        waiting = asyncio.create_task(ask(both, CHAT, SHORT))
        await eventually(lambda: [len(pool.queue) for pool in pools(both)] == [1, 1])
        await streams[frees].aclose()
        assert (await waiting)[0] == 200
        await eventually(lambda: len(both.events) == 2)
        left, served = sorted(both.events, key=lambda event: event.outcome)
        assert (left.outcome, served.outcome) == ("client_cancelled", "completed")
        assert served.deployment_id == left.deployment_id
        assert served.replica_id == left.replica_id
    await eventually(lambda: len(both.events) == 3)
    assert {event.deployment_id for event in both.events} == {"dep_var_demo", "dep_other"}
    assert taken(both) == [0, 0]
    assert [pool.load_shedder.tokens for pool in pools(both)] == [0, 0]


async def test_counting_waits_before_both_too(both: Stack) -> None:
    async with AsyncExitStack() as opened:
        streams = [AsyncExitStack(), AsyncExitStack()]
        for stream in streams:
            opened.push_async_exit(stream)
            reply = await stream.enter_async_context(both.post(CHAT, LONG | {"stream": True}))
            await reply.content.readline()
        body = {"model": "demo", "messages": MESSAGES}
        counting = asyncio.create_task(ask(both, "/v1/messages/count_tokens", body))
        await eventually(lambda: [len(pool.queue) for pool in pools(both)] == [1, 1])
        await streams[1].aclose()
        assert (await counting)[0] == 200


async def test_who_sleeps_is_left_asleep_where_another_is_there(both: Stack) -> None:
    timeouts = msgspec.structs.replace(catalog.TIMEOUTS, wake_seconds=60.0)
    sleeper = msgspec.structs.replace(
        catalog.deployment(timeouts=timeouts), deployment_id="dep_other", sleep_after_seconds=60.0
    )
    asleep = msgspec.structs.replace(
        catalog.replica(""), replica_id="dep_other", deployment_id="dep_other", state="asleep"
    )
    both.control.feed.publish("deployment", "dep_other", sleeper)
    both.control.fleet.publish("replica", "dep_other", asleep)
    both.control.fleet.publish("replica", "rep_2", None)
    await eventually(lambda: [pool.is_waking for pool in pools(both)] == [False, True])
    async with both.post(CHAT, LONG | {"stream": True}) as reply:
        await reply.content.readline()
        waiting = asyncio.create_task(ask(both, CHAT, SHORT))
        await eventually(lambda: any(len(pool.queue) for pool in pools(both)))
        assert [len(pool.queue) for pool in pools(both)] == [1, 0]
    assert (await waiting)[0] == 200


async def test_the_pool_of_a_deleted_deployment_goes_once_its_requests_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "UNUSED_POOLS_SECONDS", 0.01)
    async with running_stack(tmp_path, itl_seconds=0.02) as stack:
        held, feed, fleet = stack.gateway.directory.pools, stack.control.feed, stack.control.fleet
        async with stack.post(CHAT, LONG | {"stream": True}) as reply:
            await reply.content.readline()
            feed.publish("deployment", "dep_var_demo", None)
            fleet.publish("replica", "rep_1", None)
            await eventually(lambda: not held["dep_var_demo"].replicas)
            assert await ask(stack, CHAT, SHORT) == (503, ANY)
            await asyncio.sleep(0.05)  # several searches for unused pools
            assert list(held) == ["dep_var_demo"]
            assert b"data: [DONE]" in await reply.read()
        await eventually(lambda: not held)
        [event] = await stack.booked()
        assert (event.outcome, event.output_tokens) == ("completed", 250)
        feed.publish("deployment", "dep_var_demo", catalog.deployment())
        url = f"http://127.0.0.1:{stack.engines[0].port}"
        fleet.publish("replica", "rep_1", catalog.replica(url))
        await stack.ready()
        assert (await ask(stack, CHAT, SHORT))[0] == 200


async def test_a_pool_stays_while_its_deployment_or_a_replica_is_there(both: Stack) -> None:
    directory = both.gateway.directory
    both.control.feed.publish("deployment", "dep_other", None)
    both.control.fleet.publish("replica", "rep_1", None)
    await eventually(lambda: not directory.pools["dep_var_demo"].replicas)
    await eventually(lambda: len(directory.deployments("var_demo", both.tenant.organization)) == 1)
    directory.drop_unused_pools()
    assert set(directory.pools) == {"dep_var_demo", "dep_other"}
