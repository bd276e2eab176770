"""Requests without a valid key are refused at a bounded rate, and nobody else waits for it."""

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.gateway import auth
from serving.gateway.auth import (
    REFUSAL_SECONDS_MAX,
    REFUSALS_A_SECOND,
    REFUSALS_AT_ONCE,
    RefusalPacer,
)
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.raw_http import RawClient
from tests.fixtures.waiting import eventually

UNKNOWN = catalog.tenant("unknown").secret


def wire(path: str, secret: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n\r\n".encode()


@given(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=400), st.integers(1, 40))
def test_refusals_of_an_address_leave_at_a_bounded_rate(
    pauses: list[float], connections: int
) -> None:
    """Each connection asks again some time after it was refused."""
    now, left_at = [0.0], list[float]()
    pacer, free_at = RefusalPacer(lambda: now[0]), [0.0] * connections
    for pause in pauses:
        first = min(range(connections), key=free_at.__getitem__)
        now[0] = max(now[0], free_at[first])
        left_at.append(now[0] + pacer.delay_seconds("192.0.2.1"))
        assert left_at[-1] <= now[0] + REFUSAL_SECONDS_MAX
        free_at[first] = left_at[-1] + pause
    assert left_at == sorted(left_at)
    for count, at in enumerate(left_at, 1):
        assert count <= REFUSALS_AT_ONCE + REFUSALS_A_SECOND * at + 1e-6


def test_other_addresses_do_not_wait_and_few_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth, "ADDRESSES_MAX", 50)
    pacer = RefusalPacer(lambda: 0.0)
    delays = [pacer.delay_seconds("flood") for _ in range(1_000)]
    assert delays[:REFUSALS_AT_ONCE] == [0.0] * REFUSALS_AT_ONCE
    assert all(one <= other for one, other in pairwise(delays))
    assert delays[-1] == REFUSAL_SECONDS_MAX
    for number in range(200):
        assert pacer.delay_seconds(f"other_{number}") == 0.0
    assert len(pacer) == 50


@pytest.fixture
def slow_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an address have three refusals at once, and others only after a minute."""
    monkeypatch.setattr(auth, "REFUSALS_AT_ONCE", 3)
    monkeypatch.setattr(auth, "REFUSALS_A_SECOND", 0.001)
    monkeypatch.setattr(auth, "REFUSAL_SECONDS_MAX", 60.0)


@pytest.mark.usefixtures("slow_refusals")
@pytest.mark.parametrize(
    ("path", "secret"),
    [("/v1/models", UNKNOWN), ("/v1/models", "no key"), ("/v1/nothing", UNKNOWN)],
    ids=["unknown", "malformed", "no address"],
)
async def test_who_floods_without_a_key_waits_and_valid_keys_of_its_address_do_not(
    stack: Stack, path: str, secret: str
) -> None:
    app = stack.gateway.app
    async with AsyncExitStack() as clients:
        flood = [await clients.enter_async_context(RawClient(stack.url)) for _ in range(6)]
        for client in flood[:3]:
            await client.send(wire(path, secret))
            assert (await client.read()).startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 404 "))
        for client in flood[3:]:
            await client.send(wire(path, secret))
        await eventually(lambda: app.in_flight == 3)
        neighbour = await clients.enter_async_context(RawClient(stack.url))
        for _ in range(10):
            await neighbour.send(wire("/v1/models", stack.tenant.secret))
            assert (await neighbour.read(seconds=30.0)).startswith(b"HTTP/1.1 200 ")
        assert app.in_flight == 3
    # Who leaves is not waited for.
    await eventually(lambda: app.in_flight == 0)


@pytest.mark.usefixtures("slow_refusals")
async def test_who_waits_for_a_refusal_keeps_no_connection_and_no_body(tmp_path: Path) -> None:
    async with running_stack(tmp_path) as stack, AsyncExitStack() as clients:
        lines = stack.gateway.connections
        await eventually(lambda: not len(lines))
        lines.most = lines.most_of_one = 6
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
        flood = [await clients.enter_async_context(RawClient(stack.url)) for _ in range(6)]
        for client in flood:
            await client.send(head + bytes(60_000))
        await eventually(lambda: stack.gateway.app.in_flight == 3)
        waiting = [one.exchange for one in stack._server.connections if one.exchange]
        await eventually(lambda: not any(one.unread_bytes for one in waiting))
        for _ in range(4):
            client = await clients.enter_async_context(RawClient(stack.url))
            await client.send(wire("/v1/models", stack.tenant.secret))
            assert (await client.read()).startswith(b"HTTP/1.1 200 ")
        assert lines.refused == 0


@pytest.mark.usefixtures("slow_refusals")
async def test_a_late_refusal_comes(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "REFUSAL_SECONDS_MAX", 0.1)
    loop = asyncio.get_running_loop()
    async with RawClient(stack.url) as client:
        took = []
        for _ in range(5):
            began = loop.time()
            await client.send(wire("/v1/models", UNKNOWN))
            assert (await client.read()).startswith(b"HTTP/1.1 401 ")
            took.append(loop.time() - began)
    assert min(took[3:]) >= 0.1
