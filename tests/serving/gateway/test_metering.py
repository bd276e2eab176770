"""Every POST route meters, and is refused without money (I5); usage is durable first (I1)."""

import asyncio
import json
from typing import Any

import pytest

from serving.contract.price import charge
from serving.gateway.app import GENERATING
from tests.support import catalog
from tests.support.gateway import MESSAGES, Stack, eventually

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "demo", "messages": MESSAGES, "max_tokens": 12},
    "/v1/completions": {"model": "demo", "prompt": "A penstock is", "max_tokens": 12},
}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def test_every_post_route_has_a_metering_and_a_budget_test() -> None:
    assert set(BODIES) == set(GENERATING)


def usage_in(stream: str) -> dict[str, Any]:
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    assert [chunk["choices"] for chunk in with_usage] == [[]]
    return with_usage[0]["usage"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("extra", [{}, STREAMED], ids=["whole", "streamed"])
async def test_a_route_meters_what_it_tells_the_client(
    stack: Stack, path: str, extra: dict[str, Any]
) -> None:
    async with stack.post(path, BODIES[path] | extra) as reply:
        assert reply.status == 200
        text = await reply.text()
    usage = usage_in(text) if extra else json.loads(text)["usage"]
    event = await stack.one_event()
    assert event.event_id == reply.headers["x-request-id"]
    assert event.outcome == "completed"
    assert (event.input_tokens, event.output_tokens) == (usage["prompt_tokens"], 12)
    assert usage["prompt_tokens_details"]["cached_tokens"] == event.cached_input_tokens
    due = charge(
        catalog.price(),
        input_tokens=event.input_tokens,
        cached_input_tokens=event.cached_input_tokens,
        output_tokens=event.output_tokens,
    )
    assert sum(part.charged_nanos for part in event.charges) == due.total_nanos


@pytest.mark.parametrize("path", BODIES)
async def test_a_route_is_refused_without_money_and_reaches_no_engine(
    stack: Stack, path: str
) -> None:
    stack.control.billing.limits["balance:org_a"] = 1
    async with stack.post(path, BODIES[path]) as reply:
        error = (await reply.json())["error"]
    assert reply.status == 429
    assert (error["type"], error["code"]) == ("insufficient_quota", "credit_balance_exhausted")
    assert reply.headers["x-should-retry"] == "false"
    assert stack.gateway.treasury.held_nanos() == 0
    await asyncio.sleep(0.3)
    assert stack.events == []


@pytest.mark.parametrize("path", BODIES)
async def test_a_grant_of_credit_works_within_two_seconds(stack: Stack, path: str) -> None:
    stack.control.billing.limits["balance:org_a"] = 0
    async with stack.post(path, BODIES[path]) as reply:
        assert reply.status == 429
    stack.control.billing.limits["balance:org_a"] = 10**9
    async with asyncio.timeout(2), stack.post(path, BODIES[path]) as reply:
        assert reply.status in (200, 429)
    await asyncio.sleep(0.6)
    async with stack.post(path, BODIES[path]) as reply:
        assert reply.status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_the_event_is_in_the_journal_before_the_client_sees_the_end(
    stack: Stack, stream: bool
) -> None:
    await stack.client().chat.completions.create(model="demo", messages=MESSAGES, max_tokens=2)
    await eventually(lambda: stack.gateway.journal.done_rows == 0)
    stack.control.billing.is_down = True
    body = BODIES["/v1/chat/completions"] | {"stream": stream}
    async with stack.post("/v1/chat/completions", body) as reply:
        await reply.read()
    rows = await stack.gateway.journal.next_done(10)
    assert [event_id for event_id, _ in rows] == [reply.headers["x-request-id"]]
    stack.control.billing.is_down = False


async def test_a_client_id_used_fifty_times_leaves_fifty_events(stack: Stack) -> None:
    headers = {"x-request-id": "mine"}
    for _ in range(50):
        async with stack.post("/v1/completions", BODIES["/v1/completions"], headers) as reply:
            assert reply.headers["x-client-request-id"] == "mine"
    await eventually(lambda: len(stack.events) == 50)
    assert {event.client_request_id for event in stack.events} == {"mine"}


async def test_the_cost_header_is_what_is_charged(stack: Stack) -> None:
    async with stack.post("/v1/completions", BODIES["/v1/completions"]) as reply:
        cost = int(reply.headers["x-penstock-cost-nanos"])
    event = await stack.one_event()
    assert cost == sum(charge.charged_nanos for charge in event.charges) > 0


async def test_the_same_prompt_again_is_cached_and_cheaper_for_its_organization_only(
    stack: Stack,
) -> None:
    other = catalog.tenant("b")
    catalog.publish(stack.control, other)
    long = [{"role": "user", "content": "The river falls through the pipe. " * 20}]
    ask = {"model": "demo", "messages": long, "max_tokens": 4}
    cached = []
    for secret in (stack.tenant.secret, stack.tenant.secret, other.secret):
        await eventually(lambda: len(stack.gateway.directory._principals) == 2)
        answer = await stack.client(secret).chat.completions.create(**ask)
        assert answer.usage and answer.usage.prompt_tokens_details
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
    assert cached[0] == 0
    assert cached[1] > 0
    assert cached[2] == 0


async def test_an_organization_is_charged_by_its_contract_in_the_band_of_its_input(
    stack: Stack,
) -> None:
    other = catalog.tenant("b")
    catalog.publish(stack.control, other)
    own = catalog.contract_price("org_a", price_id="own")
    long = catalog.contract_price("org_a", price_id="own_long", input_tokens_min=20)
    for price in (own, long):
        stack.control.feed.publish("contract_price", price.price_id, price)
    version = stack.control.feed.version
    await eventually(lambda: stack.gateway.directory.mirror.version == version)
    for secret, prompt in [
        (stack.tenant.secret, "Water"),
        (stack.tenant.secret, "Water falls. " * 20),
        (other.secret, "Water"),
    ]:
        ask = {"model": "demo", "prompt": prompt, "max_tokens": 4}
        await stack.client(secret).completions.create(**ask)  # type: ignore[call-overload]
    await eventually(lambda: len(stack.events) == 3)
    assert [event.price_id for event in stack.events] == ["own", "own_long", "price_var_demo"]
    for event, price in zip(stack.events, (own, long, catalog.price()), strict=True):
        due = charge(
            price,
            input_tokens=event.input_tokens,
            cached_input_tokens=event.cached_input_tokens,
            output_tokens=event.output_tokens,
        )
        assert sum(part.charged_nanos for part in event.charges) == due.total_nanos > 0
