"""Every POST route meters, is refused without money, ends with its client, minds what it is sent,
and is shut to others (I5): made of the table in `routes.py`."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serving.contract.price import charge
from serving.gateway.dialects.routes import DIALECTS, GENERATING
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually
from tests.serving.gateway.routes import ANSWERS, METERED, ROUTES, Route, last_usage


@pytest.fixture
async def stack(stack: Stack) -> Stack:
    """A model of each kind."""
    await stack.offer_embeddings()
    return stack


routes = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
metered = pytest.mark.parametrize("route", METERED.values(), ids=METERED)
STREAMING = {path: route for path, route in METERED.items() if route.streamed is not None}
streaming = pytest.mark.parametrize("route", STREAMING.values(), ids=STREAMING)
answers = pytest.mark.parametrize(("route", "streamed"), ANSWERS.values(), ids=ANSWERS)

HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "half an object": b'{"model": "demo"',
    "a list": b"[]",
    "null": b"null",
    "no text": b"\xff\xfe\x00",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"messages":' * 50_000,
    "a lone surrogate": b'{"model": "\\ud800", "messages": [], "prompt": "", "input": ""}',
    "a number without end": b'{"model": ' + b"9" * 100_000 + b"}",
    "an unknown field": b'{"model": "demo", "cache_salt": "theirs"}',
}


@pytest.fixture
async def paced(tmp_path: Path) -> AsyncIterator[Stack]:
    """A model of each kind, on an engine that takes 5 ms a token."""
    async with running_stack(tmp_path, itl_seconds=0.005) as running:
        await running.offer_embeddings()
        yield running


def test_every_post_route_is_in_the_table() -> None:
    assert set(ROUTES) == set(DIALECTS)
    assert set(METERED) == set(GENERATING)


def events_of(stream: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]


@answers
async def test_it_meters_what_it_tells_the_client(
    stack: Stack, route: Route, streamed: bool
) -> None:
    async with stack.post(route.path, route.asked(streamed=streamed)) as reply:
        assert reply.status == 200
        text = await reply.text()
    told = route.usage(last_usage(events_of(text)) if streamed else json.loads(text)["usage"])
    event = await stack.one_event()
    assert event.event_id == reply.headers["x-request-id"]
    assert (event.outcome, event.streamed) == ("completed", streamed)
    assert told == (event.input_tokens, event.cached_input_tokens, event.output_tokens)
    assert event.output_tokens == route.output_tokens
    due = charge(
        catalog.price(),
        input_tokens=event.input_tokens,
        cached_input_tokens=event.cached_input_tokens,
        output_tokens=event.output_tokens,
    )
    assert sum(part.charged_nanos for part in event.charges) == due.total_nanos


@metered
async def test_it_is_refused_without_money_and_reaches_no_engine(
    stack: Stack, route: Route
) -> None:
    stack.control.billing.limits["balance:org_a"] = 1
    async with stack.post(route.path, route.body) as reply:
        code = route.error(reply.status, await reply.text())
    assert (reply.status, code) == (
        (402, "billing_error") if route.is_anthropics else (429, "credit_balance_exhausted")
    )
    assert reply.headers["x-should-retry"] == "false"
    assert stack.gateway.lease_manager.held_nanos() == 0
    assert stack.engines[0].engine.counts["prompt_tokens"] == 0
    assert await stack.booked() == []


@metered
async def test_a_grant_of_credit_is_heard_of(stack: Stack, route: Route) -> None:
    stack.control.billing.limits["balance:org_a"] = 0
    async with stack.post(route.path, route.body) as reply:
        assert reply.status in (402, 429)
    stack.control.billing.limits["balance:org_a"] = 10**9

    async def is_served() -> bool:
        async with stack.post(route.path, route.body) as reply:
            return reply.status == 200

    await eventually(is_served, every_seconds=0.05)


@streaming
async def test_a_client_that_hangs_up_pays_for_what_was_generated(
    paced: Stack, route: Route
) -> None:
    asked = route.body | route.long | {"stream": True}
    async with paced.post(route.path, asked) as reply:
        for _ in range(12):
            await reply.content.readuntil(b"\n\n")
    event = await paced.one_event()
    assert event.outcome == "client_cancelled"
    assert 4 <= event.output_tokens <= 20
    assert event.input_tokens > 0
    assert sum(part.charged_nanos for part in event.charges) > 0


@routes
async def test_a_client_that_hangs_up_leaves_nothing_running(paced: Stack, route: Route) -> None:
    async with RawClient(paced.url) as client:
        await client.send(request(route.path, paced.tenant.secret, route.body | route.long))
        engine = paced.engines[0].engine
        await eventually(lambda: engine.counts["prompt_tokens"] or not route.is_metered)
    await eventually(lambda: paced.gateway.app.in_flight == 0)
    await eventually(lambda: engine.slots_used == 0)
    assert engine.counts["generation_tokens"] < 200
    replicas = [
        r for pool in paced.gateway.directory.pools.values() for r in pool.replicas.values()
    ]
    await eventually(lambda: all(replica.in_flight == 0 for replica in replicas))
    await eventually(lambda: paced.gateway.lease_manager.held_nanos() == 0)


@routes
async def test_hostile_bodies_are_refused_in_words_and_harm_nobody(
    stack: Stack, route: Route
) -> None:
    for name, body in HOSTILE.items():
        async with stack.post(route.path, body) as reply:
            text = await reply.text()
        assert reply.status == 400, name
        assert route.error(reply.status, text), name
        assert len(text) < 1_000, name
    for packed in ("gzip", "br", "zstd"):
        headers = {"content-encoding": packed, "content-type": "application/json"}
        async with stack.post(route.path, b"\x1f\x8b\x08", headers) as reply:
            assert reply.status == 415
            assert "ompressed" in await reply.text()
    async with stack.post(route.path, route.body) as reply:
        assert reply.status == 200
    assert stack.gateway.lease_manager.held_nanos() == 0


@routes
async def test_it_is_shut_to_other_peoples_keys(stack: Stack, route: Route) -> None:
    make = catalog.model if DIALECTS[route.path].task == "generate" else catalog.embedder
    private = make("var_private", "private", organization_ids=("org_b",))
    stack.control.feed.publish("model", "var_private", private)
    manager = catalog.tenant("m", scopes=("manage",))
    catalog.publish(stack.control, manager)
    version = stack.control.feed.version
    await eventually(lambda: stack.gateway.directory.mirror.version == version)
    for secret, model, status in (
        ("", "demo", 401),
        ("sk-x", "demo", 401),
        (catalog.tenant("unknown").secret, "demo", 401),
        (manager.secret, "demo", 403),
        (stack.tenant.secret, "private", 404),
        (stack.tenant.secret, "nothing", 404),
    ):
        headers = {"authorization": f"Bearer {secret}"}
        async with stack.post(route.path, route.body | {"model": model}, headers) as reply:
            text = await reply.text()
        assert reply.status == status
        assert route.error(status, text)
        assert ("www-authenticate" in reply.headers) == (status == 401)
    assert await stack.booked() == []


@routes
async def test_only_posts_are_answered(stack: Stack, route: Route) -> None:
    async with RawClient(stack.url) as client:
        await client.send(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % route.path.encode())
        head, _, body = (await client.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405")
    assert b"\r\nallow: POST" in head
    assert b"\r\ndate: " in head
    assert route.error(405, body.decode())


@routes
async def test_a_trailing_slash_is_the_same_route(stack: Stack, route: Route) -> None:
    async with stack.post(route.path + "/", route.body) as reply:
        assert reply.status == 200


@answers
async def test_a_client_of_http_1_0_gets_no_chunks(
    stack: Stack, route: Route, streamed: bool
) -> None:
    asked = route.asked(streamed=streamed)
    wire = request(route.path, stack.tenant.secret, asked).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    async with RawClient(stack.url) as client:
        await client.send(wire)
        head, _, data = (await client.read_all()).partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert b"transfer-encoding" not in head
    told = last_usage(events_of(data.decode())) if streamed else json.loads(data)["usage"]
    assert route.usage(told)[2] == route.output_tokens


async def test_counting_is_what_a_message_takes_and_costs_nothing(stack: Stack) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    asked = {"model": "demo", "system": "Be brief.", "tools": tools}
    turns = [{"role": "user", "content": "How does a penstock feed a turbine?"}]
    body = asked | {"messages": turns}
    stack.control.billing.limits["balance:org_a"] = 1
    async with stack.post("/v1/messages/count_tokens", body) as reply:
        counted = (await reply.json())["input_tokens"]
    stack.control.billing.limits["balance:org_a"] = 10**12
    async with stack.post("/v1/messages", body | {"max_tokens": 3}) as reply:
        assert (await reply.json())["usage"]["input_tokens"] == counted
    event = await stack.one_event()
    assert (event.endpoint, len(stack.events)) == ("messages", 1)


async def test_an_engine_that_cannot_count_is_not_asked(stack: Stack) -> None:
    [replica] = stack.gateway.directory.pools["dep_var_demo"].replicas.values()
    deaf = catalog.replica(replica.record.url)
    fields = {name: getattr(deaf, name) for name in deaf.__struct_fields__}
    known = tuple(name for name in deaf.capabilities if name != "count")
    record = type(deaf)(**fields | {"capabilities": known})
    stack.control.fleet.publish("replica", "rep_1", record)
    await eventually(lambda: "count" not in replica.record.capabilities)
    route = ROUTES["/v1/messages/count_tokens"]
    async with stack.post(route.path, route.body) as reply:
        assert reply.status == 400
        assert "cannot count" in await reply.text()
    assert replica.consecutive_failures == 0
