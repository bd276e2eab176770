"""Too much to do: who is refused, with which words, and when to come again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from serving.contract.slot_shares import NEVER_PAID
from serving.pool.overload import LoadShedder
from serving.pool.tier_queue import QueueLimits
from tests.fixtures import catalog
from tests.fixtures.demand import demand_of
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.waiting import eventually

ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}
SLOTS = 8


@asynccontextmanager
async def busy(stack: Stack, bounds: QueueLimits, waiting: int) -> AsyncIterator[None]:
    """Fill every slot and some of the queue with requests of one organization."""
    pool, engine = stack.gateway.directory.pools["dep_var_demo"], stack.engines[0].engine
    for line in pool.queue.tier_queues.values():
        line.bounds = bounds
    engine.freeze(True)
    asking = [asyncio.create_task(ask(stack)) for _ in range(SLOTS + waiting)]
    await eventually(lambda: engine.slots_used == SLOTS and len(pool.queue) == waiting)
    try:
        yield
    finally:
        engine.freeze(False)
        await asyncio.gather(*asking)
        assert len(pool.queue) == 0


async def hurry(stack: Stack, queue_seconds: float) -> None:
    """Have whoever asks from now on wait no longer for a slot."""
    timeouts = msgspec.structs.replace(catalog.TIMEOUTS, queue_seconds=queue_seconds)
    record = catalog.deployment(timeouts=timeouts)
    stack.control.feed.publish("deployment", record.deployment_id, record)
    mirror = stack.gateway.directory.mirror
    await eventually(lambda: mirror.version == stack.control.feed.version)


async def ask(
    stack: Stack, secret: str | None = None, path: str = "/v1/chat/completions"
) -> tuple[int, Mapping[str, str], dict]:
    headers = {"authorization": f"Bearer {secret}"} if secret else None
    async with stack.post(path, ASK, headers) as reply:
        return reply.status, reply.headers, await reply.json()


async def test_an_organizations_own_flood_is_told_429_and_when_to_come_again(
    stack: Stack,
) -> None:
    bounds = QueueLimits(organization_requests=5)
    async with busy(stack, bounds, waiting=5):
        status, headers, body = await ask(stack)
        assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(headers["retry-after"]) >= 1
        status, _, body = await ask(stack, path="/v1/messages")
        assert (status, body["error"]["type"]) == (429, "rate_limit_error")


async def test_organizations_whose_records_say_that_they_never_paid_wait_as_one(
    stack: Stack,
) -> None:
    tenants = [catalog.tenant(name) for name in ("new_1", "new_2")]
    for each in tenants:
        catalog.publish(stack.control, each)
        record = msgspec.structs.replace(each.organization, is_paying=False)
        stack.control.feed.publish("organization", record.organization_id, record)
    mirror = stack.gateway.directory.mirror
    await eventually(lambda: mirror.version == stack.control.feed.version)
    pool = stack.gateway.directory.pools["dep_var_demo"]
    async with busy(stack, QueueLimits(), waiting=1):
        asking = [asyncio.create_task(ask(stack, each.secret)) for each in tenants]
        await eventually(lambda: len(pool.queue) == 3)
        waiting = {one.tenant_id: one.waiting for one in pool.queue.tier_queues["default"].busy()}
        assert waiting == {"org_a": 1, NEVER_PAID: 2}
        demands = demand_of(pool).tiers["default"]
        assert {name: (one.waiting, one.is_paying) for name, one in demands.items()} == {
            "org_a": (1, True), "org_new_1": (1, False), "org_new_2": (1, False),
        }  # fmt: skip
    assert [(await one)[0] for one in asking] == [200, 200]


async def test_a_newcomer_is_served_where_another_fills_the_queue(stack: Stack) -> None:
    newcomer = catalog.tenant("newcomer")
    catalog.publish(stack.control, newcomer)
    mirror = stack.gateway.directory.mirror
    await eventually(lambda: mirror.version == stack.control.feed.version)
    pool = stack.gateway.directory.pools["dep_var_demo"]
    asking = None
    async with busy(stack, QueueLimits(requests=5), waiting=5):
        status, headers, body = await ask(stack)
        assert (status, body["error"]["code"]) == (503, "server_is_overloaded")
        assert int(headers["retry-after"]) >= 1
        asking = asyncio.create_task(ask(stack, newcomer.secret))
        await eventually(lambda: pool.queue.refusals["default", "outweighed"] == 1)
    assert (await asking)[0] == 200
    metrics = stack.gateway.metrics.registry.get_sample_value
    labels = {"deployment": "dep_var_demo", "tier": "default", "cause": "outweighed"}
    assert metrics("penstock_gateway_queue_refusals_total", labels) == 1
    queue = {"deployment": "dep_var_demo", "tier": "default"}
    assert metrics("penstock_gateway_queue_length", queue) == 0


async def test_a_wait_past_the_deployments_deadline_is_503(stack: Stack) -> None:
    async with busy(stack, QueueLimits(), waiting=0):
        await hurry(stack, queue_seconds=0.1)
        status, headers, body = await ask(stack)
        assert (status, body["error"]["code"]) == (503, "server_is_overloaded")
        assert int(headers["retry-after"]) >= 1
    assert all(event.outcome == "completed" for event in stack.events)


async def test_where_too_many_tokens_are_held_who_comes_is_shed_at_once(stack: Stack) -> None:
    pool = stack.gateway.directory.pools["dep_var_demo"]
    async with busy(stack, QueueLimits(), waiting=1):
        kept = pool.load_shedder
        for pool.load_shedder in (LoadShedder(1), LoadShedder(10**6, within=LoadShedder(1))):
            status, headers, body = await ask(stack)
            assert (status, body["error"]["code"]) == (503, "server_is_overloaded")
            assert int(headers["retry-after"]) >= 1
            status, headers, body = await ask(stack, path="/v1/messages")
            assert (status, body["error"]["type"]) == (529, "overloaded_error")
            assert int(headers["retry-after"]) >= 1
        pool.load_shedder = kept
    assert pool.queue.refusals["default", "pressed"] == 4
    assert pool.load_shedder.tokens == stack.gateway.pressure.tokens == 0
    await eventually(lambda: len(stack.events) == SLOTS + 1)
