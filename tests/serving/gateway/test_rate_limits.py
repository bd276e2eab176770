"""Rate limits at the gateway, in every language: who is over one is told whose, how much, and when
to come back; every reply tells how limits stand."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx
import msgspec
import openai
import pytest

from serving.contract.limits import MINUTE, count_name
from serving.contract.records import ModelRateLimits, RateLimitSettings, UsageTierRecord
from serving.contract.slot_shares import DemandReport
from serving.engine.simulated.settings import Fault
from serving.fleet import slot_shares
from serving.gateway import attempt
from serving.limits import backend, redis_script
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.keyed import ask
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.redis_server import RedisServer, running_redis
from tests.fixtures.waiting import eventually
from tests.serving.gateway.routes import ROUTES, Route

pytestmark = pytest.mark.integration
CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 4}
COUNT = {"model": "demo", "messages": MESSAGES}
routes = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new Redis is gone by soon; one that answers is waited for, on a busy machine too."""
    monkeypatch.setattr(backend, "YOUNG_SECONDS", 0.1)
    monkeypatch.setattr(backend, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(redis_script, "ANSWER_SECONDS", 60.0)


@pytest.fixture
async def stack(tmp_path: Path, redis_server: RedisServer) -> AsyncIterator[Stack]:
    """A gateway that counts in Redis, with a model of each kind."""
    redis_server.flush()
    async with running_stack(tmp_path, redis_url=redis_server.url) as running:
        await running.offer_embeddings()
        await eventually(lambda: running.gateway.limiter.backend.is_open)
        yield running


async def limit(stack: Stack, kind: str = "organization", **figures: int) -> None:
    """Publish limits of the tenant's organization, project or key."""
    of = getattr(stack.tenant, kind if kind != "api_key" else "key")
    field = "own_limits" if kind == "organization" else "limits"
    record = msgspec.structs.replace(of, **{field: RateLimitSettings(**figures)})
    await publish(stack, kind, getattr(of, f"{kind.removeprefix('api_')}_id"), record)


async def publish(stack: Stack, kind: str, id_: str, record: msgspec.Struct) -> None:
    stack.control.feed.publish(kind, id_, record)
    version = stack.control.feed.version
    await eventually(lambda: stack.gateway.directory.mirror.version >= version)


async def post(
    stack: Stack, path: str = CHAT, body: Any = ASK
) -> tuple[int, httpx.Headers, dict[str, Any]]:
    async with stack.post(path, body) as reply:
        text = await reply.text()
    is_stream = reply.headers["content-type"].startswith("text/event-stream")
    return reply.status, httpx.Headers(reply.headers), {} if is_stream else json.loads(text)


async def test_an_answer_that_is_given_again_is_a_request_like_any_other(stack: Stack) -> None:
    own = {"takes_idempotency_keys": True, "own_limits": RateLimitSettings(requests_per_minute=2)}
    record = msgspec.structs.replace(stack.tenant.organization, **own)
    await publish(stack, "organization", record.organization_id, record)
    answers = [await ask(stack) for _ in range(4)]
    assert [one.status for one in answers] == [200, 200, 429, 429]
    assert [one.is_again for one in answers[:2]] == [False, True]
    assert answers[1].headers["x-ratelimit-remaining-requests"] == "0"


async def test_who_hangs_up_before_anything_was_counted_took_what_was_expected(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "LINGER_SECONDS", 0.05)
    await limit(stack, output_tokens_per_minute=200)
    stack.engines[0].script.add(Fault("hang"))
    body = ASK | {"max_tokens": 200, "stream": True}
    async with RawClient(stack.url) as client:
        await client.send(request(CHAT, stack.tenant.secret, body))
        await eventually(lambda: not stack.engines[0].script._coming)
    await stack.one_event()
    # What a minute has is wanted, so that what came back meanwhile is never enough.
    status, headers, _ = await post(stack, body=body)
    assert status == 429
    assert headers["x-ratelimit-limit-tokens"] == "200"


def check_wait(headers: Mapping[str, str], seconds: float, passed: float) -> None:
    """See that one is told to wait so long, less what has passed since its allowance was used."""
    told = int(headers["retry-after-ms"]) / 1_000
    assert seconds - passed <= told <= seconds
    assert int(headers["retry-after"]) == ceil(told)


@routes
async def test_who_is_over_a_limit_is_told_whose_how_much_and_until_when(
    stack: Stack, route: Route
) -> None:
    await limit(stack, requests_per_minute=2)
    began = time.monotonic()
    for _ in range(2):
        status, _, _ = await post(stack, route.path, route.body)
        assert status == 200
    status, headers, body = await post(stack, route.path, route.body)
    assert status == 429
    check_wait(headers, 30.0, time.monotonic() - began)
    message = body["error"]["message"]
    for part in ("your organization (org_a)", "requests per minute", "limit 2, used 2, wanted 1"):
        assert part in message
    if route.is_anthropics:
        assert body["error"]["type"] == "rate_limit_error"
        return
    assert (body["error"]["type"], body["error"]["code"]) == ("requests", "rate_limit_exceeded")
    told = body["error"]["metadata"]
    assert (told["scope"], told["scope_id"], told["measure"]) == (
        "organization", "org_a", "requests",
    )  # fmt: skip
    assert (told["limit"], told["current"], told["wanted"]) == (2, 2, 1)


@routes
@pytest.mark.parametrize("streamed", [False, True])
async def test_every_reply_tells_how_limits_stand(
    stack: Stack, route: Route, streamed: bool
) -> None:
    await limit(
        stack, requests_per_minute=100, input_tokens_per_minute=50_000,
        output_tokens_per_minute=90_000,
    )  # fmt: skip
    asked = route.asked(streamed=streamed and route.is_metered)
    for body, status in ((asked, 200), ({"model": "nothing"}, None), (b"{", 400)):
        got, headers, _ = await post(stack, route.path, body)
        assert got == status or (status is None and got >= 400)
        if route.is_anthropics:
            assert headers["anthropic-ratelimit-requests-limit"] == "100"
            assert int(headers["anthropic-ratelimit-requests-remaining"]) in (98, 99, 100)
            assert headers["anthropic-ratelimit-requests-reset"].endswith("Z")
            assert not any(name.startswith("x-ratelimit") for name in headers)
        else:
            assert headers["x-ratelimit-limit-requests"] == "100"
            assert int(headers["x-ratelimit-remaining-requests"]) in (98, 99, 100)
            assert headers["x-ratelimit-reset-requests"].endswith("s")
    if route.is_metered:
        _, headers, _ = await post(stack, route.path, route.body)
        name = "anthropic-ratelimit-tokens-limit" if route.is_anthropics else (
            "x-ratelimit-limit-tokens"
        )  # fmt: skip
        assert headers[name] == "50000"


def used(stack: Stack, limit: int) -> int:
    """How many of the organization's requests per minute the gateway knows to be used."""
    limiter = stack.gateway.limiter
    now = limiter._clock.now()
    ahead = limiter._counts.full_at.get(count_name("org_a", "requests"), now) - now
    return round(ahead * limit / MINUTE)


LARGE = ASK | {"messages": [{"role": "user", "content": "a" * 1_200_000}]}
BAD: dict[str, tuple[str, bytes, dict[str, str], int]] = {
    "no JSON": (CHAT, b"{", {}, 400),
    "a field of the wrong kind": (CHAT, b'{"model":"demo","messages":7}', {}, 400),
    "no such model": (CHAT, json.dumps(ASK | {"model": "none"}).encode(), {}, 404),
    "a body too large": (CHAT, json.dumps(LARGE).encode(), {}, 413),
    "a compressed body": (CHAT, b"{}", {"content-encoding": "gzip"}, 415),
    "tokens not counted": ("/v1/messages/count_tokens", b"{", {}, 400),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_is_no_request_for_a_model_counts_as_one(stack: Stack, name: str) -> None:
    path, body, headers, expected = BAD[name]
    await limit(stack, requests_per_minute=3)
    statuses = []
    for number in (1, 2, 3, 3):
        async with stack.post(path, body, headers) as reply:
            statuses.append(reply.status)
        await eventually(lambda n=number: used(stack, 3) == n)
    assert statuses == [expected] * 3 + [429]


async def test_who_leaves_amid_a_body_made_a_request(stack: Stack) -> None:
    await limit(stack, requests_per_minute=1)
    async with RawClient(stack.url) as client:
        await client.send(request(CHAT, stack.tenant.secret, ASK)[:-1])
        await eventually(lambda: stack.gateway.app.in_flight == 1)
    await eventually(lambda: stack.gateway.app.in_flight == 0)
    assert (await post(stack))[0] == 429


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/demo"])
async def test_to_look_at_models_is_a_request(stack: Stack, path: str) -> None:
    await limit(stack, requests_per_minute=2, input_tokens_per_minute=500)
    headers = {"authorization": f"Bearer {stack.tenant.secret}"}
    began = time.monotonic()
    async with aiohttp.ClientSession(headers=headers) as session:
        for left in (2, 1):
            async with session.get(stack.url + path) as reply:
                assert reply.status == 200
                assert reply.headers["x-ratelimit-limit-requests"] == "2"
                assert reply.headers["x-ratelimit-remaining-requests"] == str(left)
                assert reply.headers["x-ratelimit-remaining-tokens"] == "500"
            await eventually(lambda n=left: used(stack, 2) == 3 - n)
        async with session.get(stack.url + path) as reply:
            assert reply.status == 429
            check_wait(reply.headers, 30.0, time.monotonic() - began)


async def test_who_has_no_limit_is_told_of_none_and_costs_no_call(stack: Stack) -> None:
    calls = stack.gateway.limiter.backend.calls
    status, headers, _ = await post(stack)
    assert status == 200
    assert not any("ratelimit" in name for name in headers)
    assert stack.gateway.limiter.backend.calls == calls


@pytest.mark.parametrize("kind", ["organization", "project", "api_key"])
async def test_each_is_held_to_its_own_limit(stack: Stack, kind: str) -> None:
    await limit(stack, kind, requests_per_minute=1)
    assert (await post(stack))[0] == 200
    status, _, body = await post(stack)
    assert status == 429
    assert body["error"]["metadata"]["scope"] == kind.removeprefix("api_")
    assert stack.gateway.metrics.rate_limited == {(kind.removeprefix("api_"), "requests"): 1}


async def test_a_tier_holds_for_all_models_and_for_one_until_an_operator_says_otherwise(
    stack: Stack,
) -> None:
    demo = ModelRateLimits("mdl_demo", RateLimitSettings(requests_per_minute=1))
    tier = UsageTierRecord("tier_1", RateLimitSettings(requests_per_minute=3), (demo,))
    mine = msgspec.structs.replace(stack.tenant.organization, limit_tier_id="tier_1")
    await publish(stack, "limit_tier", "tier_1", tier)
    await publish(stack, "organization", "org_a", mine)
    assert (await post(stack))[0] == 200
    status, _, body = await post(stack)
    assert (status, body["error"]["metadata"]["model_id"]) == (429, "mdl_demo")
    assert "on the model mdl_demo" in body["error"]["message"]
    # The model's own limit is lifted by a row in its place, the tier's other row still holds.
    await publish(
        stack, "organization", "org_a",
        msgspec.structs.replace(
            mine, own_model_limits=(ModelRateLimits("mdl_demo", RateLimitSettings()),)
        ),
    )  # fmt: skip
    assert [(await post(stack))[0] for _ in range(3)] == [200, 200, 429]
    # A tier that changes holds at once, for all who stand in it.
    await publish(
        stack,
        "limit_tier",
        "tier_1",
        UsageTierRecord("tier_1", RateLimitSettings(requests_per_minute=600)),
    )
    # What was used of the old one, all of it, is as much of the new one, and comes back faster.
    status, headers, _ = await post(stack)
    assert status == 200 or int(headers["retry-after-ms"]) <= 100

    async def is_served() -> bool:
        return (await post(stack))[0] == 200

    await eventually(is_served)


async def test_who_has_no_request_left_is_refused_before_the_body_is_read(stack: Stack) -> None:
    await limit(stack, requests_per_minute=1)
    assert (await post(stack))[0] == 200
    async with RawClient(stack.url) as client:
        await client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n"
            b"authorization: Bearer %b\r\n\r\n{" % stack.tenant.secret.encode()
        )
        async with asyncio.timeout(60):
            head = await client.read()
    assert head.startswith(b"HTTP/1.1 429")


async def use_up(stack: Stack, times: int) -> None:
    """Ask so many times at once; all are served."""
    asked = (post(stack, body=ASK | {"max_tokens": 1}) for _ in range(times))
    assert {status for status, _, _ in await asyncio.gather(*asked)} == {200}


@pytest.mark.full
async def test_who_comes_back_when_told_is_served(stack: Stack) -> None:
    await limit(stack, requests_per_minute=20)
    await use_up(stack, 20)
    headers = await until_refused(stack)
    wait_ms = int(headers["retry-after-ms"])
    assert headers["retry-after"] == str(-(-wait_ms // 1_000))
    assert 0 < wait_ms <= 3_000
    await asyncio.sleep(wait_ms / 1_000)
    assert (await post(stack))[0] == 200
    await until_refused(stack)


async def until_refused(stack: Stack) -> Mapping[str, str]:
    """Ask until nothing is left, of what came back meanwhile either; return the refusal's words."""

    async def refusal() -> Mapping[str, str] | None:
        status, headers, _ = await post(stack)
        return headers if status == 429 else None

    headers = await eventually(refusal)
    assert headers is not None
    return headers


async def test_tokens_count_by_what_was_metered_and_cached_ones_not(stack: Stack) -> None:
    await limit(stack, input_tokens_per_minute=3_000, output_tokens_per_minute=3_000)
    prompt = [{"role": "user", "content": "A penstock feeds a turbine. " * 40}]
    began = time.monotonic()
    for _ in range(4):
        assert (await post(stack, body=ASK | {"messages": prompt}))[0] == 200
    await eventually(lambda: len(stack.events) == 4)
    uncached = sum(event.input_tokens - event.cached_input_tokens for event in stack.events)
    output = sum(event.output_tokens for event in stack.events)
    assert 0 < uncached < sum(event.input_tokens for event in stack.events) / 2
    await eventually(lambda: not stack.gateway.limiter.backend._outgoing.settled)
    # One more brings what is known up to what Redis counts, without its own estimate.
    stack.control.billing.limits["balance:org_a"] = 0
    _, headers, _ = await post(stack, "/v1/messages/count_tokens", COUNT)
    used = {
        measure: 3_000 - int(headers[f"anthropic-ratelimit-{measure}-tokens-remaining"])
        for measure in ("input", "output")
    }
    back = 50 * (time.monotonic() - began) + 1
    assert uncached - back <= used["input"] <= uncached + 1
    assert output - back <= used["output"] <= output + 1


async def test_a_debt_is_waited_for(stack: Stack) -> None:
    await limit(stack, output_tokens_per_minute=60)
    long = ASK | {"max_tokens": 200, "ignore_eos": True}
    # Nothing is known of the key: sixty are expected at most of what has a minute's worth.
    assert (await post(stack, body=long))[0] == 200
    status, headers, body = await post(stack, body=ASK)
    assert (status, body["error"]["type"]) == (429, "tokens")
    assert 100 <= int(headers["retry-after"]) <= 205
    assert body["error"]["metadata"]["current"] > 60


async def test_what_no_money_is_there_for_takes_no_tokens(stack: Stack) -> None:
    await limit(stack, input_tokens_per_minute=10_000, concurrent_requests=1)
    stack.control.billing.limits["balance:org_a"] = 1
    for _ in range(3):
        status, headers, body = await post(stack)
        assert (status, body["error"]["code"]) == (429, "credit_balance_exhausted")
    assert int(headers["x-ratelimit-remaining-tokens"]) > 9_900


async def test_requests_at_once_are_limited_until_one_ends(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    redis_server.flush()
    async with running_stack(tmp_path, redis_url=redis_server.url, itl_seconds=0.01) as stack:
        await eventually(lambda: stack.gateway.limiter.backend.is_open)
        await limit(stack, concurrent_requests=2)
        long = ASK | {"max_tokens": 60, "ignore_eos": True}
        engine = stack.engines[0].engine
        engine.freeze(True)
        running = [asyncio.create_task(post(stack, body=long)) for _ in range(2)]
        await eventually(lambda: len(engine.running) == 2)
        status, headers, body = await post(stack)
        assert (status, headers["retry-after"]) == (429, "1")
        assert "2 of 2 run" in body["error"]["message"]
        engine.freeze(False)
        assert [(await one)[0] for one in running] == [200, 200]
        assert (await post(stack))[0] == 200


async def test_the_official_clients_come_back_when_told(stack: Stack) -> None:
    await limit(stack, requests_per_minute=40)
    await use_up(stack, 40)
    async with (
        openai.AsyncOpenAI(
            api_key=stack.tenant.secret, base_url=f"{stack.url}/v1", max_retries=2
        ) as one,
        anthropic.AsyncAnthropic(
            api_key=stack.tenant.secret, base_url=stack.url, max_retries=2
        ) as other,
    ):
        answer = await comes_back(stack, one.chat.completions.with_raw_response.create)
        assert answer.headers["x-ratelimit-limit-requests"] == "40"
        message = await comes_back(stack, other.messages.with_raw_response.create)
        assert message.headers["anthropic-ratelimit-requests-limit"] == "40"

    async def refusal() -> openai.RateLimitError | None:
        try:
            await stack.client().chat.completions.create(**ASK)  # type: ignore[call-overload]
        except openai.RateLimitError as error:
            return error
        return None

    refused = await eventually(refusal)
    assert refused is not None
    assert (refused.code, refused.type) == ("rate_limit_exceeded", "requests")
    assert isinstance(refused.body, dict)
    assert refused.body["metadata"]["limit"] == 40


async def comes_back(stack: Stack, create: Any) -> Any:
    """Ask until a client was refused, came back by itself and was served; return its answer."""
    refusals = stack.gateway.metrics.rate_limited
    before = refusals.total()

    async def answer_to_the_refused() -> Any:
        answer = await create(**ASK)
        return answer if refusals.total() > before else None

    return await eventually(answer_to_the_refused)


async def test_without_redis_a_gateway_says_that_it_holds_its_part(
    stack: Stack, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limit(stack, requests_per_minute=2)
    await eventually(lambda: stack.gateway.directory.live_gateway_count() == 1)
    monkeypatch.setattr(backend, "WAIT_SECONDS", 0.05)
    redis_server.freeze()
    try:
        assert (await post(stack))[0] == 200
        ready = stack.operator_app._answer("/readyz")
        assert ready[0] == 200
        assert b"each gateway's part (1 of 1): no answer within 50 ms" in ready[2]
        metrics = await stack.operator_app.metrics()
        assert b"penstock_gateway_limits_apart 1.0" in metrics
        assert [(await post(stack))[0] for _ in range(2)] == [200, 429]
    finally:
        redis_server.thaw()
        monkeypatch.setattr(backend, "WAIT_SECONDS", 60.0)
    await eventually(lambda: stack.gateway.limiter.backend.is_open)
    assert (await post(stack))[0] == 429


async def test_without_control_limits_are_parted_by_what_the_fleet_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_shares, "GATEWAY_SECONDS", 600.0)
    async with running_stack(tmp_path) as alone:
        await limit(alone, requests_per_minute=6)
        came = DemandReport("gw_that_came_later", 1, {})
        alone.control.slots.shares.report(came, {}, time.monotonic())
        await eventually(lambda: alone.gateway.live_gateway_count() == 2)
        assert alone.gateway.directory.live_gateway_count() == 1
        assert [(await post(alone))[0] for _ in range(4)] == [200] * 3 + [429]
