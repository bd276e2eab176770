"""A gateway whose host's clock is wrong, or is stepped, serves and books by control's time."""

import asyncio
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from serving.contract.ids import moment_of
from serving.usage import leases
from serving.usage.clock import GatewayClock
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 3}
HOUR = 3_600.0
LATE_SECONDS = 60.0
"""How far from the truth a time may be: a busy machine is slow to ask."""


class Host:
    """A host's clock, and how far it is ahead."""

    def __init__(self, ahead_seconds: float) -> None:
        self.ahead_seconds = ahead_seconds
        self.clock = GatewayClock(host=lambda: time.time() + self.ahead_seconds)


def is_right(at: datetime) -> bool:
    return abs((at - datetime.now(UTC)).total_seconds()) < LATE_SECONDS


async def restart(stack: Stack, host: Host) -> None:
    await stack.stop_gateway()
    await stack.start_gateway(host.clock)


def readiness(stack: Stack) -> tuple[int, bytes]:
    status, _, text = stack.operator_app._answer("/readyz")
    return status, text


async def status_of(stack: Stack) -> int:
    async with stack.post(CHAT, ASK) as reply:
        return reply.status


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_a_gateway_an_hour_off_serves_and_says_so(stack: Stack, ahead: float) -> None:
    await restart(stack, Host(ahead))
    await eventually(lambda: stack.gateway.clock.is_set_by_control)
    assert await status_of(stack) == 200
    event = await stack.one_event()
    assert is_right(event.received_at)
    assert event.received_at == moment_of(event.event_id)
    status, text = readiness(stack)
    assert status == 200
    [told] = re.findall(rb"this host's clock is ([+-]\d+) s off; control's time is taken", text)
    assert abs(int(told) - ahead) < LATE_SECONDS
    metrics = (await stack.operator_app.metrics()).decode()
    [line] = [x for x in metrics.splitlines() if x.startswith("penstock_gateway_clock_skew")]
    assert abs(float(line.split()[1]) - ahead) < LATE_SECONDS


async def test_a_clock_stepped_between_two_requests_disturbs_neither(stack: Stack) -> None:
    host = Host(0.0)
    await restart(stack, host)
    assert await status_of(stack) == 200
    host.ahead_seconds = HOUR
    for _ in range(5):
        assert await status_of(stack) == 200
        await asyncio.sleep(0.2)
    await eventually(lambda: len(stack.events) == 6)
    assert all(is_right(event.received_at) for event in stack.events)


async def test_a_request_named_by_a_clock_that_was_wrong_is_refused_once_control_set_it(
    stack: Stack,
) -> None:
    await stack.stop_gateway()
    gate = asyncio.Event()
    stack.control.billing.is_down = True
    host = Host(HOUR)
    host.clock.observe = hold_back(host.clock.observe, gate)  # type: ignore[method-assign]
    await stack.start_gateway(host.clock)
    await eventually(lambda: stack.gateway.directory.mirror.version > 0)
    asking = asyncio.create_task(status_of(stack))
    await eventually(lambda: stack.gateway.lease_manager._waiting.total() == 1)
    stack.control.billing.is_down = False
    gate.set()
    assert await asking == 503
    assert stack.gateway.lease_manager.held_nanos() == 0
    assert await status_of(stack) == 200
    event = await stack.one_event()
    assert is_right(event.received_at)


Hear = Callable[[str | None, float], None]


def hold_back(hear: Hear, gate: asyncio.Event) -> Hear:
    def hear_later(date: str | None, seconds: float) -> None:
        if gate.is_set():
            hear(date, seconds)

    return hear_later


async def test_a_gateway_that_billing_never_answered_is_not_ready(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.stop_gateway()
    stack.control.billing.is_down = True
    await stack.start_gateway()
    with monkeypatch.context() as patch:
        patch.setattr(leases, "WAIT_SECONDS", 0.2)
        assert await status_of(stack) == 503
    status, told = readiness(stack)
    assert (status, told.splitlines()[0]) == (503, b"billing grants no leases")
    # Nobody asks any more; it looks by itself whether that is over.
    for balance in list(stack.gateway.lease_manager.all_balances()):
        stack.gateway.lease_manager.drop(balance)
    stack.gateway.poll._open.clear()
    stack.control.billing.is_down = False
    await eventually(lambda: readiness(stack)[0] == 200)
    assert await status_of(stack) == 200
