"""Usage is durable before the end (I1), and charged by cache, contract and band."""

import json
from pathlib import Path

import msgspec
import pytest

from serving.contract.price import charge
from serving.engine.events import TokenUsage
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.scripted_server import scripted
from tests.fixtures.waiting import eventually
from tests.serving.gateway import routes

CHAT, COMPLETIONS = routes.CHAT.body, routes.COMPLETIONS.body


@pytest.mark.parametrize("stream", [False, True])
async def test_the_event_is_in_the_journal_before_the_client_sees_the_end(
    stack: Stack, stream: bool
) -> None:
    await stack.client().chat.completions.create(model="demo", messages=MESSAGES, max_tokens=2)
    await eventually(lambda: stack.gateway.journal.unacknowledged_count == 0)
    stack.control.billing.is_down = True
    body = CHAT | {"stream": stream}
    async with stack.post("/v1/chat/completions", body) as reply:
        await reply.read()
    rows = await stack.gateway.journal.next_finished(10)
    assert [row.event_id for row in rows] == [reply.headers["x-request-id"]]
    stack.control.billing.is_down = False


async def test_the_fair_queue_charges_what_an_engine_has_counted_so_far(tmp_path: Path) -> None:
    async with running_stack(tmp_path, itl_seconds=0.02, models=("var_demo",)) as stack:
        line = stack.gateway.directory.pools["dep_var_demo"].queue.tier_queues["default"]
        body = CHAT | {"stream": True, "max_tokens": 100, "ignore_eos": True}
        async with stack.post("/v1/chat/completions", body) as reply:
            (service,) = await eventually(lambda: line._services)
            progress = service.progress
            assert progress is not None
            tokens = await eventually(progress)
            line.charge_running(service.began_at)
            assert 0 < service.request.rates.cost(tokens) <= service.charged
            await reply.read()
        event = await stack.one_event()
        taken = TokenUsage(event.input_tokens, event.cached_input_tokens, event.output_tokens)
        assert service.request.rates.cost(taken) <= service.charged
        assert service.is_settled and service.progress is None


async def test_a_client_id_used_fifty_times_leaves_fifty_events(stack: Stack) -> None:
    headers = {"x-request-id": "mine"}
    for _ in range(50):
        async with stack.post("/v1/completions", COMPLETIONS, headers) as reply:
            assert reply.headers["x-client-request-id"] == "mine"
    await eventually(lambda: len(stack.events) == 50)
    assert {event.client_request_id for event in stack.events} == {"mine"}


async def test_the_cost_header_is_what_is_charged(stack: Stack) -> None:
    async with stack.post("/v1/completions", COMPLETIONS) as reply:
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
        await eventually(lambda: stack.gateway.directory.principal(other.key.digest))
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


def boasting(prompt: int, completion: int, cached: int) -> list[bytes | None]:
    """An answer of one word that says it took far more."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": completion},
    }
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    chunks = [{"choices": [choice]}, {"choices": [], "usage": usage}]
    told = [{"id": "chatcmpl-1", "created": 1, "model": "m"} | chunk for chunk in chunks]
    body = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in told)
    body += b"data: [DONE]\n\n"
    return [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_says_it_took_more_than_was_asked_is_billed_as_asked(
    stack: Stack, stream: bool
) -> None:
    async with scripted(lambda *_: boasting(10**9, 10**9, 10**8)) as engine:
        record = catalog.replica(f"http://127.0.0.1:{engine.port}", 9)
        record = msgspec.structs.replace(record, capabilities=("chat", "no_prefix_cache"))
        stack.control.fleet.publish("replica", "rep_1", None)
        stack.control.fleet.publish("replica", "rep_9", record)
        pools = stack.gateway.directory.pools
        await eventually(lambda: set(pools["dep_var_demo"].replicas) == {"rep_9"})
        body = CHAT | {"stream": stream}
        async with stack.post("/v1/chat/completions", body) as reply:
            assert reply.status == 200
        event = await stack.one_event()
    # The context is 512 tokens, and 12 were asked for.
    assert (event.input_tokens, event.cached_input_tokens) == (512, 512)
    assert (event.output_tokens, event.reasoning_tokens) == (12, 12)
    assert event.charges[0].charged_nanos == 512 * 75 + 12 * 600
    assert stack.gateway.metrics.overstated == 1
