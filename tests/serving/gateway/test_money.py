"""What a client hears of money: figures when there is none, a retry when it is on its way."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from serving.contract.budget import period_end, period_start
from serving.contract.ids import new_id
from serving.contract.lease import LeaseAsk, LeaseGrant
from serving.contract.prompt import BYTE_TOKENS, PromptBound
from serving.contract.records import OrganizationRecord, ProjectRecord
from serving.gateway.error_mapping import insufficient_quota
from serving.usage import leases
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": MESSAGES, "max_tokens": 100, "ignore_eos": True}
WORST = 512 * 150 + 1 + 100 * 600
"""The template's allowance fills the context: 512 input at 150 nanos, one for the cached split, 100
output at 600."""
BALANCE = "balance:org_a"


def lease_elsewhere(stack: Stack, nanos: int) -> LeaseGrant:
    """Let another gateway lease, and never return."""
    ask = LeaseAsk(new_id(), BALANCE, nanos, nanos, stack.control.billing._now())
    granted = stack.control.billing._answer("gw_other", ask)
    assert isinstance(granted, LeaseGrant)
    return granted


async def test_a_refusal_says_what_the_request_could_cost_and_what_is_left(stack: Stack) -> None:
    stack.control.billing.limits[BALANCE] = 50_000
    async with stack.post(CHAT, BODY) as reply:
        error = (await reply.json())["error"]
    assert reply.status == 429
    assert "could cost $0.0001368," in error["message"]
    assert "$0.00005 is left" in error["message"]


@pytest.mark.parametrize(
    ("record", "kind", "budget_id", "words"),
    [
        (
            ProjectRecord("proj_a", "org_a", ("limit:proj_a:day",)), "project",
            "limit:proj_a:day", "project's daily limit of $0.00005",
        ),
        (
            OrganizationRecord("org_a", "active", (BALANCE, "limit:org_a:week"), "salt_a"),
            "organization", "limit:org_a:week", "organization's weekly limit of $0.00005",
        ),
    ],
)  # fmt: skip
async def test_a_refusal_says_which_limit_of_how_much_and_when_it_renews(
    stack: Stack, record: Any, kind: str, budget_id: str, words: str
) -> None:
    stack.control.billing.limits[budget_id] = 50_000
    stack.control.feed.publish(kind, budget_id.split(":")[1], record)
    began = datetime.now(UTC)
    for _ in range(100):
        async with stack.post(CHAT, BODY) as reply:
            body = await reply.json()
        if reply.status == 429:
            break
    error = body["error"]
    assert (reply.status, error["type"]) == (429, "insufficient_quota")
    assert error["code"] == f"{kind}_spend_limit_exceeded"
    ends = {period_end(budget_id, period_start(budget_id, at)) for at in (began, datetime.now(UTC))}
    assert any(f"renews at {at:%Y-%m-%d} 00:00 UTC" in error["message"] for at in ends)
    assert f"and $0.00005 is left of your {words} ({budget_id})." in error["message"]
    assert "used up" not in error["message"]
    assert reply.headers["x-should-retry"] == "false"
    figures = error["metadata"]
    assert (figures["scope"], figures["scope_id"]) == (kind, budget_id.split(":")[1])
    assert (figures["limit"], figures["left"], figures["held"]) == (50_000, 50_000, 0)
    assert figures["wanted"] > figures["left"]
    assert datetime.fromisoformat(figures["resets_at"]) in ends


@pytest.mark.parametrize(
    ("left_nanos", "held_nanos", "words"),
    [
        (0, 0, "Your project's daily limit of $0.001 (limit:proj_a:day) is used up: this request"),
        (1, 0, "and $0.000000001 is left of your project's daily limit of $0.001"),
        (790_000, 0, "and $0.00079 is left of your project's daily limit of $0.001"),
        (0, 210_000, "$0.00 is left of your project's daily limit of $0.001 (limit:proj_a:day),"
            " beside $0.00021 held by requests in progress."),
    ],
)  # fmt: skip
def test_a_limit_is_called_used_up_only_where_nothing_of_it_is_left(
    left_nanos: int, held_nanos: int, words: str
) -> None:
    budget_id = "limit:proj_a:day"
    refused = leases.BudgetExceeded(
        "project_spend_limit_exceeded", available_nanos=left_nanos, budget_id=budget_id,
        held_nanos=held_nanos, limit_nanos=1_000_000, ends_at=datetime(2026, 11, 29, tzinfo=UTC),
    )  # fmt: skip
    error = insufficient_quota(refused, cost_nanos=10**9)
    assert words in error.message
    assert ("used up" in error.message) == (left_nanos == held_nanos == 0)
    assert "could cost $1.00" in error.message
    assert error.message.endswith("It renews at 2026-11-29 00:00 UTC.")


async def test_money_on_its_way_from_another_gateway_is_worth_a_retry(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = stack.control.billing
    billing.limits[BALANCE] = 2 * WORST
    lease = lease_elsewhere(stack, 2 * WORST)
    with monkeypatch.context() as patch:
        patch.setattr(leases, "WAIT_SECONDS", 0.2)
        async with stack.post(CHAT, BODY) as reply:
            error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (503, "usage_unavailable")
    assert (reply.headers["retry-after"], reply.headers.get("x-should-retry")) == ("1", None)
    row = billing.books.leases[lease.lease_id]
    row.stopped, row.keep_nanos = True, 0
    async with stack.post(CHAT, BODY) as reply:
        assert reply.status == 200


async def know_the_prompts_of(stack: Stack) -> None:
    """Have the fleet say what it knows of the engine's tokenizer and template."""
    record = catalog.replica(f"http://127.0.0.1:{stack.engines[0].port}")
    told = (*record.capabilities, BYTE_TOKENS)
    record = msgspec.structs.replace(record, capabilities=told, template_tokens=32)
    stack.control.fleet.publish("replica", "rep_1", record)
    pool = stack.gateway.directory.pools["dep_var_demo"]
    await eventually(lambda: pool.prompt_bound == PromptBound(1, 32))


async def test_the_last_of_a_limit_serves_a_short_prompt(stack: Stack) -> None:
    """It has at most as many tokens as bytes, and not a whole context."""
    await know_the_prompts_of(stack)
    body = {"model": "demo", "messages": MESSAGES, "max_tokens": 1}
    told = len(msgspec.json.encode({"messages": MESSAGES}))
    stack.control.billing.limits[BALANCE] = (told + 32) * 150 + 1 + 600
    async with stack.post(CHAT, body) as reply:
        assert reply.status == 200
        cost = int(reply.headers["x-penstock-cost-nanos"])
    async with stack.post(CHAT, body) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["type"]) == (429, "insufficient_quota")
    assert [event.charges[0].charged_nanos for event in await stack.booked()] == [cost]
    assert stack.gateway.lease_manager.held_nanos() == 0


async def test_a_burst_of_large_max_tokens_waits_for_money_and_is_all_served(stack: Stack) -> None:
    """There is enough for what all of them cost, and never for what all could."""
    cost = 12 * 150 + 100 * 600
    stack.control.billing.limits[BALANCE] = 11 * cost + WORST

    async def ask() -> int:
        async with stack.post(CHAT, BODY) as reply:
            await reply.read()
            return reply.status

    assert set(await asyncio.gather(*(ask() for _ in range(12)))) == {200}
    events = await stack.booked()
    charged = [sum(one.charged_nanos for one in event.charges) for event in events]
    assert charged == [cost] * 12


async def test_what_is_held_shrinks_to_the_prompt_that_the_engine_names(tmp_path: Path) -> None:
    async with running_stack(tmp_path, itl_seconds=0.02) as stack:
        lease_manager = stack.gateway.lease_manager
        async with stack.post(CHAT, BODY | {"stream": True}) as reply:
            await reply.content.readuntil(b"\n\n")
            held_nanos = lease_manager.held_nanos()
        [event] = await stack.booked()
        assert held_nanos == event.input_tokens * 150 + 100 * 600 < WORST
        assert lease_manager.held_nanos() == 0


async def babble(request: web.Request) -> web.StreamResponse:
    """Answer with a usage that is none, and fall silent."""
    reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await reply.prepare(request)
    chunk = {"choices": [{"index": 0, "delta": {"content": "x"}}], "usage": {"prompt_tokens": "9"}}
    await reply.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
    with suppress(ConnectionError, asyncio.CancelledError):
        await asyncio.sleep(60)
    return reply


async def test_usage_that_is_malformed_when_the_client_leaves_holds_nothing(tmp_path: Path) -> None:
    engine = web.Application()
    engine.router.add_post(CHAT, babble)
    runner = web.AppRunner(engine, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}".format(*runner.addresses[0][:2])
    async with running_stack(tmp_path) as stack:
        stack.control.fleet.publish("replica", "rep_1", catalog.replica(url))
        pool = stack.gateway.directory.pools["dep_var_demo"]
        await eventually(lambda: pool.replicas["rep_1"].record.url == url)
        async with stack.post(CHAT, BODY | {"stream": True}) as reply:
            await reply.content.readuntil(b"\n\n")
        event = await stack.one_event()
        assert (event.outcome, event.charges, event.output_tokens) == ("engine_failed", (), 0)
        assert stack.gateway.lease_manager.held_nanos() == 0
    await runner.cleanup()
