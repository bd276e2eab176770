"""Who leaves while something is refused or counted is nobody's error, and holds nothing."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from serving.gateway.http.response import ClientDisconnected, HttpResponse
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

COUNT = "/v1/messages/count_tokens"


async def test_who_is_gone_when_it_is_refused_is_no_error_of_ours(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.Event()

    async def leave(self: HttpResponse, *_: Any) -> None:
        refused.set()
        self.abort()
        raise ClientDisconnected

    monkeypatch.setattr(HttpResponse, "send", leave)
    with capture_logs() as lines:
        async with RawClient(stack.url) as client:
            await client.send(request("/v1/nothing", stack.tenant.secret, {}))
            await eventually(refused.is_set)
            await eventually(lambda: stack.gateway.app.in_flight == 0)
            assert await client.read_all() == b""
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_who_leaves_while_it_is_counted_frees_the_slot(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    routes = stack.engines[0]._routes
    monkeypatch.setitem(routes, ("POST", "/tokenize"), lambda _: asked.set())
    [pool] = stack.gateway.directory.pools.values()
    [replica] = pool.replicas.values()
    async with RawClient(stack.url) as client:
        await client.send(
            request(COUNT, stack.tenant.secret, {"model": "demo", "messages": MESSAGES})
        )
        await eventually(asked.is_set)
        assert replica.in_flight == 1
    await eventually(lambda: replica.in_flight == 0)
    await eventually(lambda: stack.gateway.app.in_flight == 0)
