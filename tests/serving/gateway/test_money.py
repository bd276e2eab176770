"""What a client hears of money: figures when there is none, a retry when it is on its way."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web

from serving.contract.ids import new_id
from serving.contract.lease import Ask, Granted
from serving.gateway.__main__ import listener
from serving.gateway.gateway import build
from tests.support import catalog
from tests.support.gateway import MESSAGES, Stack, config, eventually, running_stack

CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": MESSAGES, "max_tokens": 100, "ignore_eos": True}
WORST = 512 * 150 + 1 + 100 * 600
"""The template's allowance fills the context: 512 input at 150 nanos, one for the cached split, 100
output at 600."""
BALANCE = "balance:org_a"


def lease_elsewhere(stack: Stack, nanos: int) -> Granted:
    """Let another gateway lease, and never return."""
    ask = Ask(new_id(), BALANCE, nanos, nanos, stack.control.billing._now())
    granted = stack.control.billing._answer("gw_other", ask)
    assert isinstance(granted, Granted)
    return granted


async def test_a_refusal_says_what_the_request_could_cost_and_what_is_left(stack: Stack) -> None:
    stack.control.billing.limits[BALANCE] = 50_000
    async with stack.post(CHAT, BODY) as reply:
        error = (await reply.json())["error"]
    assert reply.status == 429
    assert "could cost $0.0001368," in error["message"]
    assert "$0.00005 is left" in error["message"]


async def test_money_on_its_way_from_another_gateway_is_worth_a_retry(stack: Stack) -> None:
    billing = stack.control.billing
    billing.limits[BALANCE] = 2 * WORST
    lease = lease_elsewhere(stack, 2 * WORST)
    began = time.monotonic()
    async with stack.post(CHAT, BODY) as reply:
        error = (await reply.json())["error"]
    assert time.monotonic() - began < 3
    assert (reply.status, error["code"]) == (503, "usage_unavailable")
    assert (reply.headers["retry-after"], reply.headers.get("x-should-retry")) == ("1", None)
    row = billing.books.leases[lease.lease_id]
    row.stopped, row.keep_nanos = True, 0
    async with stack.post(CHAT, BODY) as reply:
        assert reply.status == 200


async def babble(request: web.Request) -> web.StreamResponse:
    """Answer with a usage that is none, and fall silent."""
    reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await reply.prepare(request)
    chunk = {"choices": [{"index": 0, "delta": {"content": "x"}}], "usage": {"prompt_tokens": "9"}}
    await reply.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
    with suppress(ConnectionError, asyncio.CancelledError):
        await asyncio.sleep(5)
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
        assert stack.gateway.treasury.held_nanos() == 0
    await runner.cleanup()


async def test_money_for_three_serves_three_of_two_hundred_on_two_gateways(tmp_path: Path) -> None:
    async with running_stack(tmp_path / "a", credit_nanos=3 * WORST, itl_seconds=0.02) as stack:
        second = build(config(tmp_path / "b", stack.control.url))
        second.start()
        server = listener(second.app, "127.0.0.1", 0)
        serving = asyncio.create_task(server.serve())
        await eventually(lambda: server.started and second.directory.mirror.version > 0)
        await eventually(lambda: any(p.has_ready_replica for p in second.directory.pools.values()))
        port = server.servers[0].sockets[0].getsockname()[1]
        refused_after: list[float] = []
        secret = {"authorization": f"Bearer {stack.tenant.secret}"}

        async def ask(session: aiohttp.ClientSession, url: str) -> int:
            async with session.post(url + CHAT, json=BODY, headers=secret) as reply:
                await reply.read()
            if reply.status != 200:
                refused_after.append(time.monotonic() - began)
            return reply.status

        urls = [stack.url, f"http://127.0.0.1:{port}"] * 100
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            began = time.monotonic()
            statuses = await asyncio.gather(*(ask(session, url) for url in urls))
        server.should_exit = True
        await serving
        await second.stop()
        assert {status: statuses.count(status) for status in set(statuses)} == {200: 3, 429: 197}
        assert max(refused_after) < 3
        await eventually(lambda: len(stack.events) == 3)
