"""A model that sleeps: listed, waited for, told of in every dialect; and woken by whoever asks."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from serving.contract.records import DeploymentRecord
from serving.contract.replica import State
from tests.fixtures import catalog
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.fleet_process import OF_A_GATEWAY, FleetProcess
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.gateway_process import GatewayProcess, gateway_process
from tests.fixtures.waiting import eventually

CHAT = {"model": "demo", "messages": MESSAGES, "max_tokens": 4}
WAKE_SECONDS = 120.0
"""For what takes four where nothing else runs."""
QUESTIONS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | {"stream": True}),
    ("/v1/messages", CHAT),
    ("/v1/messages/count_tokens", {"model": "demo", "messages": MESSAGES}),
    ("/v1/responses", {"model": "demo", "input": "hello", "max_output_tokens": 16}),
]


def sleeper(wake_seconds: float, **fields: Any) -> DeploymentRecord:
    timeouts = msgspec.structs.replace(catalog.TIMEOUTS, wake_seconds=wake_seconds)
    return msgspec.structs.replace(catalog.deployment(timeouts=timeouts), **fields)


async def fall_asleep(stack: Stack, wake_seconds: float = 0.2, **fields: Any) -> None:
    """Have the fleet say that the model sleeps, and needs 40 s to be ready."""
    control, pool = stack.control, stack.gateway.directory.pools["dep_var_demo"]
    record = msgspec.structs.replace(
        catalog.replica("http://127.0.0.1:0"),
        replica_id="dep_var_demo",
        state="asleep",
        load_seconds=40.0,
    )
    control.feed.publish("deployment", "dep_var_demo", sleeper(wake_seconds, **fields))
    control.fleet.publish("replica", "dep_var_demo", record)
    control.fleet.publish("replica", "rep_1", None)
    await eventually(lambda: list(pool.replicas) == ["dep_var_demo"])
    await eventually(lambda: pool.wake_seconds == wake_seconds)


@pytest.mark.parametrize(("path", "body"), QUESTIONS)
async def test_who_waits_in_vain_is_told_when_to_come_back(
    stack: Stack, path: str, body: dict[str, Any]
) -> None:
    await fall_asleep(stack, sleep_after_seconds=300.0)
    begun = time.monotonic()
    async with stack.post(path, body) as reply:
        said = await reply.text()
    status = 529 if path.startswith("/v1/messages") else 503
    assert (reply.status, reply.headers["retry-after"]) == (status, "40")
    assert time.monotonic() - begun >= 0.2, "it waits first"
    assert "The model is loading: it should be ready in about 40 s." in said
    demands = [one.deployments.get("dep_var_demo") for one in stack.control.slots.reports]
    assert any(one is not None and one.tiers.get("default") for one in demands), "the fleet is told"


LOADING: list[tuple[State, float | None, str, bool]] = [
    ("loading", 3600.0, "model_loading", True),
    ("canary", 3600.0, "model_loading", True),
    ("pending", 3600.0, "model_loading", True),
    ("loading", 0.0, "model_loading", False),  # longer than the last time
    ("loading", None, "model_loading", False),  # its first start
    ("failed", 3600.0, "model_unavailable", False),
    ("stopped", None, "model_unavailable", False),
]


@pytest.mark.parametrize(("state", "load_seconds", "code", "is_learned"), LOADING)
async def test_a_model_that_loads_says_when_to_come_back(
    stack: Stack, state: State, load_seconds: float | None, code: str, is_learned: bool
) -> None:
    """Nobody waits for it here: the time is that of the deployment's last start."""
    [known] = stack.gateway.directory.pools["dep_var_demo"].replicas.values()
    record = msgspec.structs.replace(known.record, state=state, load_seconds=load_seconds)
    stack.control.fleet.publish("replica", record.replica_id, record)
    await eventually(lambda: known.record.state == state)
    async with stack.post("/v1/chat/completions", CHAT) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (503, code)
    retry_after = reply.headers["retry-after"]
    assert 3000 < int(retry_after) <= 3600 if is_learned else retry_after == "5"
    assert (f"ready in about {retry_after} s" in error["message"]) is is_learned


async def test_what_sleeps_is_listed_and_what_is_stopped_is_not(stack: Stack) -> None:
    async def listed() -> list[str]:
        client = stack.client()
        return [model.id async for model in client.models.list()]

    await fall_asleep(stack, sleep_after_seconds=300.0)
    assert await listed() == ["demo", "demo:bf16"]
    await fall_asleep(stack, wake_seconds=60.0, sleep_after_seconds=300.0, replicas_min=0)
    await eventually(lambda: not stack.gateway.directory.pools["dep_var_demo"].is_waking)
    assert await listed() == []
    begun = time.monotonic()
    async with stack.post("/v1/chat/completions", CHAT) as reply:
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert time.monotonic() - begun < 30, "nobody waits for what an operator stopped"


@dataclass
class Setup:
    """A gateway on a fleet that lets its one deployment sleep after a second."""

    control: FakeControl
    fleet: FleetProcess
    gateway: GatewayProcess
    session: aiohttp.ClientSession
    tenant: catalog.Tenant

    async def ask(self, **fields: Any) -> tuple[int, str, str]:
        headers = {"authorization": f"Bearer {self.tenant.secret}"}
        url = f"{self.gateway.url}/v1/chat/completions"
        async with self.session.post(url, json=CHAT | fields, headers=headers) as reply:
            return reply.status, reply.headers.get("retry-after", ""), await reply.text()

    async def is_asleep(self) -> bool:
        states = [one.state for one in await self.fleet.replicas()]
        return "asleep" in states and not {"ready", "draining"} & set(states)

    async def stands(self, standing: str) -> bool:
        name = "penstock_fleet_deployments"
        return await self.fleet.metric(name, standing=standing) == 1


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    control, tenant = FakeControl(), catalog.tenant()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(control.serving())
        catalog.publish(control, tenant)
        control.feed.publish("deployment", "dep_var_demo", sleeps(WAKE_SECONDS))
        fleet = FleetProcess(control, tmp_path / "fleet")  # type: ignore[arg-type]
        stack.push_async_callback(fleet.clear_up)
        await fleet.start()
        await fleet.ready()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        gateway = await stack.enter_async_context(
            gateway_process(
                tmp_path / "gateway",
                control.url,
                fleet_url=fleet.base,
                credential=OF_A_GATEWAY,
            )
        )
        yield Setup(control, fleet, gateway, session, tenant)


def sleeps(wake_seconds: float, **fields: Any) -> DeploymentRecord:
    arguments = ("--itl-seconds", "0.02", "--load-seconds", "2")
    return sleeper(
        wake_seconds, **{"sleep_after_seconds": 1.0, "engine_arguments": arguments} | fields
    )


@pytest.mark.integration
@pytest.mark.full
async def test_a_request_wakes_what_sleeps_is_answered_and_it_sleeps_again(
    setup: Setup,
) -> None:
    fleet = setup.fleet
    await eventually(setup.is_asleep)
    assert await setup.stands("asleep")
    assert fleet.engines() == []

    *both, _ = await asyncio.gather(
        setup.ask(),
        setup.ask(max_tokens=100, ignore_eos=True),
        eventually(lambda: setup.stands("ready"), seconds=WAKE_SECONDS),
    )
    assert [status for status, _, _ in both] == [200, 200]
    assert '"completion_tokens":100' in both[1][2]  # two seconds, longer than until it sleeps
    assert await fleet.metric("penstock_fleet_wakes_total") == 1
    await eventually(setup.is_asleep)

    # What it takes to load is known by now, to a fleet that starts anew too.
    setup.control.feed.publish("deployment", "dep_var_demo", sleeps(wake_seconds=0.3))
    await fleet.end()
    await fleet.start()

    async def in_vain() -> int:
        await eventually(setup.is_asleep)
        status, seconds, _ = await setup.ask()
        return int(seconds) if status == 503 else 0  # else the gateway had not heard of it yet

    assert 2 <= await eventually(in_vain) <= 60
    await fleet.ready()
    await eventually(setup.is_asleep)

    setup.control.feed.publish("deployment", "dep_var_demo", sleeps(WAKE_SECONDS, replicas_min=0))

    async def is_stopped() -> bool:
        return (await setup.ask())[:2] == (503, "5") and await setup.stands("stopped")

    await eventually(is_stopped)
    assert fleet.engines() == []
