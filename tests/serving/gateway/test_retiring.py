"""A gateway that is told to end: streams come to their ends, or are told; nobody is refused."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving.gateway.__main__ import retire
from serving.gateway.operator_api import readiness_problem
from tests.fixtures import gateway as support
from tests.fixtures.environment import free_port
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.gateway_processes import gateway, until_ready, world
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
STREAM = {"model": "demo", "messages": MESSAGES, "max_tokens": 60, "stream": True}


async def retired(stack: Stack, *, drain_seconds: float, lame_duck_seconds: float = 0.0) -> None:
    """End the stack's listener as a signal does."""
    config = replace(
        support.config(stack.folder, stack.control.url),
        drain_seconds=drain_seconds,
        lame_duck_seconds=lame_duck_seconds,
    )
    await retire(stack.gateway, stack._server, config)


async def test_a_stream_comes_to_its_end(tmp_path: Path) -> None:
    async with (
        running_stack(tmp_path, itl_seconds=0.01) as stack,
        stack.post(CHAT, STREAM) as reply,
    ):
        await reply.content.readline()
        ending = asyncio.create_task(retired(stack, drain_seconds=120))
        text = await reply.read()
        assert text.endswith(b"data: [DONE]\n\n")
        await ending
        assert (await stack.one_event()).outcome == "completed"


async def test_what_lasts_too_long_is_told_and_costs_nothing(tmp_path: Path) -> None:
    async with running_stack(tmp_path, itl_seconds=0.5) as stack:
        whole = asyncio.create_task(_whole(stack))
        async with stack.post(CHAT, STREAM) as reply:
            await reply.content.readline()
            await eventually(lambda: stack.gateway.app.in_flight == 2)
            await retired(stack, drain_seconds=0.2)
            last = (await reply.read()).strip().splitlines()[-1]
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "server_is_overloaded"
        status, body = await whole
        assert status == 503
        assert body["error"]["message"] == "This gateway is being restarted. Please try again."
        await eventually(lambda: len(stack.events) == 2)
        assert {event.outcome for event in stack.events} == {"timed_out"}
        assert not any(charge.charged_nanos for event in stack.events for charge in event.charges)


async def _whole(stack: Stack) -> tuple[int, dict]:
    async with stack.post(CHAT, STREAM | {"stream": False}) as reply:
        return reply.status, await reply.json()


class Patient:
    """asyncio, whose sleep lasts until it is over."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.slept: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.over.wait()


async def test_a_lame_duck_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stack(tmp_path) as stack:
        patient = Patient()
        monkeypatch.setattr("serving.gateway.__main__.asyncio", patient)
        ending = asyncio.create_task(retired(stack, drain_seconds=60, lame_duck_seconds=5))
        await eventually(lambda: readiness_problem(stack.gateway) == "draining")
        async with stack.post(CHAT, STREAM | {"max_tokens": 2}) as reply:
            assert reply.status == 200
            assert reply.headers["connection"] == "close"
            await reply.read()
        assert patient.slept == [5]
        assert not ending.done()
        patient.over.set()
        await ending


def test_the_longest_request_is_waited_for(stack: Stack) -> None:
    assert stack.gateway.directory.longest_seconds == 600.0


@asynccontextmanager
async def streaming(url: str, secret: str) -> AsyncIterator[list[str]]:
    """Keep twenty streams open at all times; yields what went wrong."""
    wrong, ending = list[str](), asyncio.Event()

    async def client(session: aiohttp.ClientSession) -> None:
        while not ending.is_set():
            async with session.post(f"{url}{CHAT}", json=STREAM) as reply:
                text = await reply.read()
                if reply.status != 200 or not text.endswith(b"data: [DONE]\n\n"):
                    wrong.append(f"{reply.status} {text[-200:]!r}")

    headers = {"authorization": f"Bearer {secret}"}
    # A connection that is reused may close as it is written to; whoever reuses them asks again.
    lines = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(headers=headers, connector=lines) as session:
        clients = [asyncio.create_task(client(session)) for _ in range(20)]
        yield wrong
        ending.set()
        await asyncio.gather(*clients)


@pytest.mark.full
async def test_gateways_restart_one_after_another_and_nobody_is_cut_or_refused(
    tmp_path: Path,
) -> None:
    async with world(itl_seconds=0.005) as (control, listening, secret):
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        ports = [free_port() for _ in range(3)]
        async with AsyncExitStack() as running:

            async def start(name: str, port: int) -> asyncio.subprocess.Process:
                starting = gateway(tmp_path / name, control, listening, port)
                process = await running.enter_async_context(starting)
                await until_ready(port)
                return process

            first = await start("one", ports[0])
            async with streaming(url, secret) as wrong:
                second = await start("two", ports[1])
                first.send_signal(signal.SIGTERM)
                await first.wait()
                await start("one", ports[2])
                second.send_signal(signal.SIGTERM)
                await second.wait()
                await asyncio.sleep(0.5)
            assert wrong == []
    events = control.billing.events.values()
    assert {event.outcome for event in events} == {"completed"}
    assert len({event.gateway_id for event in events}) == 2
