"""Gateways on a socket that somebody else listens on: who connects while one ends or dies waits for
the next, and is not refused."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import aiohttp
import pytest

from serving import telemetry
from serving.gateway.__main__ import main
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import MESSAGES
from tests.fixtures.gateway_processes import environment, gateway, world
from tests.fixtures.waiting import eventually

BODY = {"model": "demo", "messages": MESSAGES, "max_tokens": 3}


async def ask(listening: socket.socket, secret: str) -> int:
    """Ask on a fresh connection; a gateway that is just starting is asked again."""
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/chat/completions"
    headers = {"authorization": f"Bearer {secret}"}
    async with asyncio.timeout(60), aiohttp.ClientSession(headers=headers) as session:
        while True:
            async with session.post(url, json=BODY) as reply:
                await reply.read()
                if reply.status != 503:
                    return reply.status
            await asyncio.sleep(0.05)


@pytest.mark.full
async def test_who_asks_while_no_gateway_runs_is_answered_by_the_next(tmp_path: Path) -> None:
    async with world() as (control, listening, secret):
        early = asyncio.create_task(ask(listening, secret))
        async with gateway(tmp_path / "one", control, listening) as first:
            assert await early == 200
            os.kill(first.pid, signal.SIGKILL)
            await first.wait()
        between = asyncio.create_task(ask(listening, secret))
        await asyncio.sleep(0.2)
        assert not between.done()
        async with gateway(tmp_path / "two", control, listening):
            assert await between == 200
            # It has also shipped what the first one left, and given its leases back.
            await eventually(lambda: len(control.billing.events) == 2)
            owners = {event.gateway_id for event in control.billing.events.values()}
            assert len(owners) == 2
            leases = control.billing.books.leases.values()
            mine = {lease.gateway_id for lease in leases}
            assert mine == owners
            await eventually(lambda: sum(not lease.closed for lease in leases) <= 1)


def test_a_descriptor_that_is_no_socket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = FakeControl()
    control.url = "http://127.0.0.1:1"
    for name, value in environment(tmp_path, control, 997).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(telemetry, "configure", lambda _: None)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == "gateway: PENSTOCK_GATEWAY_FD is 997: Bad file descriptor"
