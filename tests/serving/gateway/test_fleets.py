"""One gateway and several fleets: each states its own replicas, and organizations stay in the
regions that they allow."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from serving.contract.fleet import feed_lineage
from serving.contract.grammar import GrammarVerdict
from serving.engine.simulated.server import SimulatedConnection, SimulatedServer
from serving.engine.simulated.settings import SimulatorSettings
from serving.feed.subscription import FeedSubscription
from serving.gateway.operator_api import warnings
from tests.fixtures import catalog
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.waiting import eventually

CHAT = {"model": "demo", "messages": MESSAGES, "max_tokens": 3}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {}}},
}
REGIONS = ("eu", "us")
ROUTES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "demo", "prompt": "A penstock", "max_tokens": 3},
    "/v1/responses": {"model": "demo", "input": "A penstock", "max_output_tokens": 16},
    "/v1/messages": CHAT,
    "/v1/messages/count_tokens": {"model": "demo", "messages": MESSAGES},
}


class Engine(SimulatedServer):
    """An engine that knows what it was asked."""

    def __init__(self) -> None:
        super().__init__(SimulatorSettings(models=("var_demo",), port=0, context_tokens=512))
        self.asked: list[str] = []

    def _handle(self, connection: SimulatedConnection) -> None:
        self.asked.append(connection.path)
        super()._handle(connection)


@dataclass
class Regions:
    """A gateway's stack, and in each region a fleet with one engine."""

    stack: Stack
    fleets: dict[str, FakeControl]
    engines: dict[str, Engine]

    async def allow(self, *regions: str) -> None:
        """Bind the organization to regions."""
        record = msgspec.structs.replace(
            self.stack.tenant.organization, allowed_regions=regions or None
        )
        self.stack.control.feed.publish("organization", record.organization_id, record)
        table = self.stack.gateway.directory.authenticator.organizations
        await eventually(lambda: table.get(record.organization_id) == record)

    async def end_replica(self, region: str) -> None:
        """Take a region's only replica away."""
        self.fleets[region].fleet.publish("replica", f"rep_{region}", None)
        pool = self.stack.gateway.directory.pools[f"dep_{region}"]
        await eventually(lambda: not pool.replicas)

    async def start_replica(self, region: str) -> None:
        """State a region's replica, and wait until slots of it are granted."""
        url = f"http://127.0.0.1:{self.engines[region].port}"
        record = msgspec.structs.replace(
            catalog.replica(url), replica_id=f"rep_{region}", deployment_id=f"dep_{region}"
        )
        self.fleets[region].fleet.publish("replica", record.replica_id, record)
        pools = self.stack.gateway.directory.pools
        await eventually(
            lambda: (
                f"dep_{region}" in pools
                and any(each.free for each in pools[f"dep_{region}"].replicas.values())
            )
        )

    async def ask(self, path: str = "/v1/chat/completions", **fields: object) -> int:
        async with self.stack.post(path, ROUTES[path] | fields) as reply:
            await reply.read()
            return reply.status

    def asked(self, region: str) -> int:
        """Return how many requests a region's engine has had."""
        return len(self.engines[region].asked)


@pytest.fixture
async def regions(tmp_path: Path) -> AsyncIterator[Regions]:
    control, tenant = FakeControl(), catalog.tenant()
    fleets = {region: FakeControl() for region in REGIONS}
    engines = {region: Engine() for region in REGIONS}
    eu, us = fleets.values()
    async with control.serving(), eu.serving(), us.serving():
        stack = Stack(control, tmp_path, tenant)
        stack.fleet_urls = {region: fleet.url for region, fleet in fleets.items()}
        catalog.publish(control, tenant, credit_nanos=10**12)
        control.feed.publish("deployment", "dep_var_demo", None)
        for region in REGIONS:
            record = catalog.deployment(fleet_id=region, region=region)
            record = msgspec.structs.replace(record, deployment_id=f"dep_{region}")
            control.feed.publish("deployment", record.deployment_id, record)
            await engines[region].start()
        await stack.start_gateway()
        both = Regions(stack, fleets, engines)
        try:
            for region in REGIONS:
                await both.start_replica(region)
            yield both
        finally:
            for client in stack.clients:
                await client.close()
            await stack.stop_gateway()
            for engine in engines.values():
                await engine.stop()


@pytest.mark.parametrize("path", ROUTES)
async def test_where_no_allowed_region_serves_nothing_is_sent_to_another(
    regions: Regions, path: str
) -> None:
    await regions.allow("eu")
    assert await regions.ask(path) == 200
    assert regions.asked("us") == 0
    await regions.end_replica("eu")
    assert await regions.ask(path) in (503, 529)  # as Anthropic's clients are told
    assert regions.asked("us") == 0


async def test_a_request_is_tried_again_in_no_region_but_those_allowed(regions: Regions) -> None:
    await regions.allow("eu")
    await regions.engines["eu"].stop()  # its replica is still stated
    assert await regions.ask() == 503
    assert regions.asked("us") == 0
    await regions.allow()
    assert await regions.ask() == 200
    assert regions.asked("us") == 1


async def test_models_that_run_in_no_allowed_region_are_not_offered(regions: Regions) -> None:
    client = regions.stack.client()
    for allowed, offered in ((("eu",), True), (("ap",), False), ((), True)):
        await regions.allow(*allowed)
        models = await client.models.list()
        assert bool(models.data) is offered


async def test_who_allows_some_regions_is_not_served_where_none_is_stated(
    regions: Regions,
) -> None:
    record = catalog.deployment(fleet_id="us")
    record = msgspec.structs.replace(record, deployment_id="dep_us")
    regions.stack.control.feed.publish("deployment", "dep_us", record)
    await regions.allow("us")
    assert await regions.ask() == 503
    assert (regions.asked("eu"), regions.asked("us")) == (0, 0)


async def test_a_deployment_of_a_fleet_that_is_not_followed_has_no_slots_and_is_reported(
    regions: Regions,
) -> None:
    stack, url = regions.stack, f"http://127.0.0.1:{regions.engines['us'].port}"

    def told() -> list[str]:
        return [each for each in warnings(stack.gateway) if "PENSTOCK_FLEET_URL" in each]

    assert not told()
    record = catalog.deployment(fleet_id="ap", region="ap")
    record = msgspec.structs.replace(record, deployment_id="dep_ap")
    stack.control.feed.publish("deployment", "dep_ap", record)
    pools = stack.gateway.directory.pools
    await eventually(lambda: "dep_ap" in pools)
    replica = msgspec.structs.replace(
        catalog.replica(url), replica_id="rep_ap", deployment_id="dep_ap"
    )
    regions.fleets["us"].fleet.publish("replica", "rep_ap", replica)
    await eventually(lambda: "rep_ap" in pools["dep_ap"].replicas)
    assert pools["dep_ap"].replicas["rep_ap"].free == 0
    [warning] = told()
    assert warning.startswith("deployments of ap,")


async def test_a_fleets_snapshot_leaves_the_replicas_of_another(regions: Regions) -> None:
    pools, us = regions.stack.gateway.directory.pools, regions.fleets["us"]
    mirror = regions.stack.gateway.fleets["us"].replica_feed.mirror
    us.fleet.changes.clear()
    us.fleet.is_snapshot = True
    us.fleet.publish("replica", "rep_gone", None)
    await eventually(lambda: mirror.version == us.fleet.version)
    await eventually(lambda: not pools["dep_us"].replicas)
    assert list(pools["dep_eu"].replicas) == ["rep_eu"]
    assert await regions.ask() == 200


async def test_demand_and_grammars_go_to_the_deployments_own_fleet(regions: Regions) -> None:
    await regions.allow("us")
    regions.fleets["us"].grammars.verdict = GrammarVerdict("good")
    assert await regions.ask(response_format=SCHEMA) == 200
    eu, us = (fleet for fleet in regions.fleets.values())
    assert (len(eu.grammars.questions), len(us.grammars.questions)) == (0, 1)
    for name, fleet in regions.fleets.items():
        told = {id_ for report in fleet.slots.reports for id_ in report.deployments}
        assert told <= {f"dep_{name}"}


async def test_a_fleet_that_is_away_takes_nothing_from_the_others(regions: Regions) -> None:
    eu = regions.fleets["eu"]
    eu.slots.is_down = True
    eu.grammars.verdict = None
    await eventually(lambda: regions.stack.gateway.fleets["eu"].demand.failures > 1)
    await regions.allow("us")
    regions.fleets["us"].grammars.verdict = GrammarVerdict("good")
    assert await regions.ask(response_format=SCHEMA) == 200
    await regions.stack.stop_gateway()
    await regions.stack.start_gateway()
    pools = regions.stack.gateway.directory.pools
    await eventually(lambda: any(each.free for each in pools["dep_us"].replicas.values()))
    assert list(pools["dep_eu"].replicas) == ["rep_eu"], "as its file says"
    assert await regions.ask() == 200


async def test_an_older_life_of_a_fleet_is_not_followed_any_more(regions: Regions) -> None:
    """Behind one address there may be two for a while, and the older knows nothing of the newer's
    replicas; a gateway that starts anew remembers which was the newer."""
    us, stack = regions.fleets["us"].fleet, regions.stack

    def feed() -> FeedSubscription:
        return stack.gateway.fleets["us"].replica_feed

    async def is_refused() -> None:
        failures = feed().follower.counts.failures
        await eventually(lambda: feed().follower.counts.failures > failures + 1)

    us.lineage = feed_lineage(7, "newer")
    us.publish("replica", "rep_us_2", None)
    await eventually(lambda: feed().mirror.lineage == us.lineage)
    await regions.allow("us")
    us.lineage, newer = feed_lineage(6, "older"), us.lineage
    us.is_snapshot = True
    us.changes.clear()
    us.publish("replica", "rep_gone", None)
    for _ in range(2):
        await is_refused()
        assert list(stack.gateway.directory.pools["dep_us"].replicas) == ["rep_us"]
        await stack.stop_gateway()
        await stack.start_gateway()
    us.lineage = newer
    await eventually(lambda: not stack.gateway.directory.pools["dep_us"].replicas)
