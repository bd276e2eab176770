"""Gateways that share replicas: together never more than there are slots, and none is left idle."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from serving.contract.records import DEFAULT_FLEET, GatewayCountRecord
from serving.contract.slot_shares import EngineLoad
from tests.fixtures import catalog
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.fleet_process import OF_A_GATEWAY, FleetProcess
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.gateway_process import GatewayProcess, gateway_process
from tests.fixtures.waiting import eventually

SLOTS = 6
GATEWAYS = 3
TENANTS = [catalog.tenant(name) for name in ("a", "b", "c")]
DEPLOYMENT = catalog.deployment(slots=SLOTS, engine_arguments=("--itl-seconds", "0.02"))
ASK = {"model": "demo", "messages": MESSAGES, "ignore_eos": True}


@dataclass
class Setup:
    """Three gateways on one fleet with one replica, and clients that never rest."""

    fleet: FleetProcess
    session: aiohttp.ClientSession
    engine_url: str
    gateways: list[GatewayProcess]
    statuses: list[int] = field(default_factory=list)
    clients: list[asyncio.Task[None]] = field(default_factory=list)

    def load(self, gateway: GatewayProcess, tenant: catalog.Tenant, clients: int) -> None:
        """Have clients of an organization ask one gateway again and again."""
        self.clients += [asyncio.create_task(self._ask(gateway, tenant)) for _ in range(clients)]

    async def _ask(self, gateway: GatewayProcess, tenant: catalog.Tenant) -> None:
        headers = {"authorization": f"Bearer {tenant.secret}"}
        url = f"{gateway.url}/v1/chat/completions"
        while True:
            try:
                body = ASK | {"max_tokens": 12}
                async with self.session.post(url, json=body, headers=headers) as reply:
                    await reply.read()
                    self.statuses.append(reply.status)
            except aiohttp.ClientError:
                return

    async def engine(self, name: str) -> float:
        """Return a figure of the engine's."""
        async with self.session.get(f"{self.engine_url}/metrics") as reply:
            found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", await reply.text(), re.MULTILINE)
        assert found
        return float(found[1])

    async def shares(self, gateways: list[GatewayProcess]) -> list[float]:
        """Return how many slots each of some gateways may take."""
        name = "penstock_gateway_slots_share"
        return [await one.metric(self.session, name) for one in gateways]


def stored_replicas(folder: Path) -> str:
    """What gateways keep of the replica feed on disk."""
    files = list(folder.glob("gateway-*/**/replicas.sqlite3*"))
    assert len(files) >= GATEWAYS
    return "".join(path.read_bytes().decode("latin-1") for path in files)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    control = FakeControl()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(control.serving())
        catalog.publish(control, *TENANTS)
        control.feed.publish("deployment", "dep_var_demo", DEPLOYMENT)
        fleet = FleetProcess(
            control,  # type: ignore[arg-type]
            tmp_path / "fleet",
            PENSTOCK_FLEET_IDLE_PROBE_SECONDS="600",
        )
        stack.push_async_callback(fleet.clear_up)
        await fleet.start()
        [replica] = await fleet.ready()
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        starting = [
            stack.enter_async_context(
                gateway_process(
                    tmp_path / f"gateway-{number}",
                    control.url,
                    fleet_url=fleet.base,
                    credential=OF_A_GATEWAY,
                )
            )
            for number in range(GATEWAYS)
        ]
        gateways = [await one for one in starting]
        setup = Setup(fleet, session, fleet.engine_url(replica), gateways)
        yield setup
        assert replica.token not in await asyncio.to_thread(stored_replicas, tmp_path)
        for client in setup.clients:
            client.cancel()
        await asyncio.gather(*setup.clients, return_exceptions=True)


@pytest.mark.integration
@pytest.mark.full
async def test_three_gateways_never_fill_a_replica_beyond_its_slots(
    setup: Setup,
) -> None:
    async def divided() -> bool:
        return sorted(await setup.shares(setup.gateways)) == [2, 2, 2]

    async def runs(count: int) -> None:
        async def are_at_work() -> bool:
            return await setup.engine("vllm:num_requests_running") == count

        await eventually(are_at_work)

    await eventually(divided)
    first, second, third = setup.gateways
    setup.load(first, TENANTS[0], clients=24)
    await runs(SLOTS - 2)  # each of the idle ones keeps one slot for whoever comes
    setup.load(second, TENANTS[1], clients=6)
    setup.load(third, TENANTS[2], clients=4)
    await eventually(lambda: len(setup.statuses) > 150)

    async def was_full() -> bool:
        return await setup.engine("simulated:sequences_max") >= SLOTS

    await eventually(was_full)
    assert await setup.engine("simulated:sequences_max") == SLOTS
    assert set(setup.statuses) == {200}

    os.kill(first.pid, signal.SIGKILL)

    async def is_back() -> bool:
        return sum(await setup.shares([second, third])) == SLOTS

    await eventually(is_back)
    assert await setup.fleet.metric("penstock_fleet_gateways") == 2
    await runs(SLOTS)
    assert await setup.engine("simulated:sequences_max") == SLOTS


async def ask(stack: Stack, **fields: object) -> int:
    async with stack.post("/v1/chat/completions", ASK | {"max_tokens": 2} | fields) as reply:
        await reply.read()
        return reply.status


async def test_a_gateway_that_the_fleet_does_not_answer_any_more_keeps_its_share(
    stack: Stack,
) -> None:
    pool, slots = stack.gateway.directory.pools["dep_var_demo"], stack.control.slots
    await eventually(lambda: pool.replicas["rep_1"].share == 8)
    slots.is_down = True
    await eventually(lambda: stack.gateway.fleets[DEFAULT_FLEET].demand.failures > 1)
    assert pool.replicas["rep_1"].share == 8
    assert await ask(stack) == 200
    slots.is_down = False
    await eventually(lambda: stack.gateway.fleets[DEFAULT_FLEET].demand.failures == 0)


async def test_where_the_fleet_never_answered_a_gateway_takes_its_part_of_all(
    tmp_path: Path,
) -> None:
    async with running_stack(tmp_path) as stack:
        stack.control.slots.is_down = True
        await stack.stop_gateway()
        await stack.start_gateway()
        await stack.ready()
        assert await ask(stack) == 200
        pool = stack.gateway.directory.pools["dep_var_demo"]
        assert (
            pool.replicas["rep_1"].share,
            stack.gateway.fleets[DEFAULT_FLEET].shares.has_reply,
        ) == (8, False)
        for gateways, part in ((3, 2), (20, 1), (2, 4)):
            size = GatewayCountRecord(gateways)
            stack.control.feed.publish("fleet_size", "all", size)
            await eventually(lambda part=part: pool.replicas["rep_1"].share == part)
        assert await ask(stack) == 200


async def test_how_full_engines_are_is_known_as_long_as_the_fleet_tells(stack: Stack) -> None:
    pool, slots = stack.gateway.directory.pools["dep_var_demo"], stack.control.slots
    slots.strains = {"rep_1": EngineLoad(2, 0.5), "rep_9": EngineLoad(1, 1.0)}
    await eventually(lambda: pool.replicas["rep_1"].engine_load == 2.5)
    slots.is_down = True
    await eventually(lambda: pool.replicas["rep_1"].engine_load == 0.0)
    slots.is_down = False
    await eventually(lambda: pool.replicas["rep_1"].engine_load == 2.5)
    slots.strains = {}
    await eventually(lambda: pool.replicas["rep_1"].engine_load == 0.0)


async def test_each_life_of_a_gateway_says_that_it_is_another(stack: Stack) -> None:
    reports = stack.control.slots.reports
    await eventually(lambda: len(reports) > 2)
    [first] = {report.life for report in reports}
    await stack.stop_gateway()
    await stack.start_gateway()
    await eventually(lambda: reports[-1].life not in ("", first))
    assert reports[-1].gateway_id == reports[0].gateway_id


async def test_the_fleet_hears_who_waits_and_how_urgently(stack: Stack) -> None:
    flex = catalog.price(tier="flex", price_id="price_flex")
    stack.control.feed.publish("price", "price_flex", flex)
    mirror, feed = stack.gateway.directory.mirror, stack.control.feed
    await eventually(lambda: mirror.version == feed.version)
    stack.engines[0].engine.freeze(True)
    asking = [asyncio.create_task(ask(stack, n=4, temperature=1)) for _ in range(2)]
    await eventually(lambda: stack.engines[0].engine.slots_used == 8)
    asking.append(asyncio.create_task(ask(stack, service_tier="flex")))

    def is_heard() -> bool:
        tiers = stack.control.slots.tiers["dep_var_demo"]
        return (
            tiers.keys() == {"default", "flex"}
            and tiers["default"]["org_a"].running == 8
            and tiers["flex"]["org_a"].waiting == 1
        )

    await eventually(is_heard)
    stack.engines[0].engine.freeze(False)
    assert await asyncio.gather(*asking) == [200, 200, 200]

    def is_idle() -> bool:
        return stack.control.slots.tiers["dep_var_demo"] == {"default": {}}

    await eventually(is_idle)
