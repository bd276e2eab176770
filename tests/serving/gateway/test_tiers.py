"""Tiers: a request's `service_tier` picks its price and its place in line, and is told."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from serving.contract.records import UsageTierRecord
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.waiting import eventually

ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 4}
HALF = {"input_nanos": 75_000_000, "cached_input_nanos": 37_500_000, "output_nanos": 300_000_000}


@pytest.fixture
async def tiered(tmp_path: Path) -> AsyncIterator[Stack]:
    """A model that is sold as `flex` too, at half the price, on one slot."""
    async with running_stack(tmp_path, slots=1) as stack:
        price = catalog.price(tier="flex", price_id="price_flex", **HALF)
        stack.control.feed.publish("price", price.price_id, price)
        record = catalog.replica(f"http://127.0.0.1:{stack.engines[0].port}", slots=1)
        stack.control.fleet.publish("replica", "rep_1", record)
        mirror, feed = stack.gateway.directory.mirror, stack.control.feed
        await eventually(lambda: mirror.version == feed.version)
        pool = stack.gateway.directory.pools["dep_var_demo"]
        await eventually(lambda: pool.replicas["rep_1"].share == 1)
        yield stack


async def test_a_tier_has_a_price_of_its_own_and_the_event_says_it(tiered: Stack) -> None:
    answer = await tiered.client().chat.completions.create(**ASK, service_tier="flex")
    assert answer.service_tier == "flex"
    event = await tiered.one_event()
    assert (event.tier, event.price_id) == ("flex", "price_flex")
    assert answer.usage is not None
    uncached = event.input_tokens - event.cached_input_tokens
    cost = uncached * 75_000 + event.cached_input_tokens * 37_500 + event.output_tokens * 300_000
    assert sum(charge.charged_nanos for charge in event.charges) == round(cost / 1_000)


async def test_every_chunk_of_a_stream_says_the_tier_that_was_named(tiered: Stack) -> None:
    stream = await tiered.client().chat.completions.create(
        **ASK, service_tier="flex", stream=True, stream_options={"include_usage": True}
    )
    assert {chunk.service_tier async for chunk in stream} == {"flex"}


@pytest.mark.parametrize(("asked", "told"), [("auto", "default"), ("default", "default")])
async def test_auto_is_default(tiered: Stack, asked: str, told: str) -> None:
    answer = await tiered.client().chat.completions.create(**ASK, service_tier=asked)  # type: ignore[call-overload]
    assert answer.service_tier == told
    assert (await tiered.one_event()).tier == "default"


async def test_who_names_no_tier_is_told_none(tiered: Stack) -> None:
    async with tiered.post("/v1/chat/completions", ASK) as reply:
        assert "service_tier" not in await reply.json()


async def test_a_tier_that_the_model_is_not_sold_in_is_refused_by_name(tiered: Stack) -> None:
    for tier in ("priority", "batch"):
        with pytest.raises(openai.BadRequestError, match=f"'{tier}'") as caught:
            await tiered.client().chat.completions.create(**ASK, service_tier=tier)  # type: ignore[call-overload]
        assert caught.value.body["param"] == "service_tier"  # type: ignore[index]
    assert not tiered.events


async def test_a_tier_that_the_usage_tier_does_not_include_is_refused_by_name(
    tiered: Stack,
) -> None:
    feed, mirror = tiered.control.feed, tiered.gateway.directory.mirror
    feed.publish("limit_tier", "tier_1", UsageTierRecord("tier_1", service_tiers=("default",)))
    mine = msgspec.structs.replace(tiered.tenant.organization, limit_tier_id="tier_1")
    feed.publish("organization", mine.organization_id, mine)
    await eventually(lambda: mirror.version == feed.version)
    words = "'flex' is not in your organization's usage tier, which has: default"
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        await tiered.client().chat.completions.create(**ASK, service_tier="flex")
    assert caught.value.body["param"] == "service_tier"  # type: ignore[index]
    await tiered.client().chat.completions.create(**ASK)
    feed.publish("limit_tier", "tier_1", UsageTierRecord("tier_1", service_tiers=("flex",)))
    await eventually(lambda: mirror.version == feed.version)
    await tiered.client().chat.completions.create(**ASK, service_tier="flex")
    with pytest.raises(openai.BadRequestError, match="'default' is not in"):
        await tiered.client().chat.completions.create(**ASK)


async def test_responses_say_the_tier_and_messages_are_standard(tiered: Stack) -> None:
    answer = await tiered.client().responses.create(model="demo", input="hi", service_tier="flex")
    assert answer.service_tier == "flex"
    body = {**ASK, "service_tier": "auto"}
    async with tiered.post("/v1/messages", body) as reply:
        assert (await reply.json())["usage"]["service_tier"] == "standard"
    await eventually(lambda: len(tiered.events) == 2)
    assert {event.tier for event in tiered.events} == {"flex", "default"}


async def test_less_urgent_requests_wait_for_more_urgent_ones(tiered: Stack) -> None:
    engine, ended = tiered.engines[0].engine, []

    async def ask(tier: str) -> None:
        async with tiered.post("/v1/chat/completions", ASK | {"service_tier": tier}) as reply:
            assert reply.status == 200
        ended.append(tier)

    engine.freeze(True)
    asking = [asyncio.create_task(ask("flex"))]
    await eventually(lambda: engine.slots_used == 1)
    queue = tiered.gateway.directory.pools["dep_var_demo"].queue
    for place, tier in enumerate(("flex", "default"), start=1):
        asking.append(asyncio.create_task(ask(tier)))
        await eventually(lambda place=place: len(queue) == place)
    assert engine.sequences_max == 1
    engine.freeze(False)
    await asyncio.gather(*asking)
    assert ended == ["flex", "default", "flex"]
