"""How full engines are, as gateways are told with their shares."""

from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from serving.contract.codec import decode, encode
from serving.contract.credential import ServiceAuthenticator, ServiceIdentity, issue
from serving.contract.slot_shares import (
    DemandReport,
    DeploymentDemand,
    EngineLoad,
    ReplicaUsage,
    SlotSharesReply,
)
from serving.engine.probe import EngineHealth
from serving.fleet.__main__ import adapters
from serving.fleet.config import FleetConfig
from serving.fleet.grammar_service import GrammarService
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.replica import NO_LOAD
from serving.fleet.server import FleetServer
from serving.fleet.slot_shares import SlotAllocator
from serving.fleet.state_store import FleetStore
from tests.fixtures import catalog

ROOT = "a secret"


def vitals(waiting: int, cache_usage: float, deferred: int = 0) -> EngineHealth:
    return EngineHealth(3, waiting, 0, 0, cache_usage, deferred=deferred)


def fleet_of(folder: Path, session: aiohttp.ClientSession) -> FleetReconciler:
    """Return a fleet of three ready replicas, which runs none."""
    config = FleetConfig(
        "http://control", "", ServiceAuthenticator((ROOT,)), "127.0.0.1", 1, folder, 20_000, 3
    )
    fleet = FleetReconciler(
        config, adapters(otlp_endpoint=None, kv_cache_gib=1), FleetStore(folder), session
    )
    for name in ("full", "empty", "silent"):
        replica = fleet._make_replica(name, catalog.deployment(slots=4), "")
        replica.state = "ready"
        fleet.replicas[name] = replica
    return fleet


@pytest.mark.parametrize(
    ("seen", "strain"),
    [
        (vitals(0, 0.0), NO_LOAD),
        (vitals(0, 0.04), NO_LOAD),
        (vitals(0, 0.56), EngineLoad(0, 0.6)),
        (vitals(3, 1.0), EngineLoad(3, 1.0)),
        (vitals(3, 0.2, deferred=2), EngineLoad(1, 0.2)),
        (vitals(1, 0.0, deferred=2), NO_LOAD),
        (vitals(0, 1.7), EngineLoad(0, 1.0)),
    ],
)
async def test_what_waits_for_room_and_the_cache_in_use_are_told_coarsely(
    tmp_path: Path, seen: EngineHealth, strain: EngineLoad
) -> None:
    async with aiohttp.ClientSession() as session:
        replica = fleet_of(tmp_path, session).replicas["full"]
        replica.record_health(seen)
        assert replica.engine_load == strain


async def test_gateways_hear_how_full_the_engines_are_of_which_they_have_slots(
    tmp_path: Path,
) -> None:
    callers = ServiceAuthenticator((ROOT,))
    async with aiohttp.ClientSession() as session:
        fleet = fleet_of(tmp_path, session)
        fleet.own(1)
        fleet.replicas["full"].record_health(vitals(2, 0.93))
        fleet.replicas["empty"].record_health(vitals(0, 0.0))
        shares = SlotAllocator(epoch=1)
        server = FleetServer(
            fleet, CollectorRegistry(), callers, GrammarService({}, judges_max=1), shares
        )
        url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}/demand"
        headers = {"authorization": f"Bearer {issue(ROOT, ServiceIdentity('gateway', 'a'))}"}
        try:
            for number, known in enumerate((("full", "empty", "silent", "gone"), ("empty",)), 1):
                held = DeploymentDemand({name: ReplicaUsage(0, 0) for name in known})
                report = DemandReport("gw", number, {"dep_var_demo": held})
                async with session.post(url, data=encode(report), headers=headers) as answer:
                    reply = decode(await answer.read(), SlotSharesReply)
                assert reply.strains == ({"full": EngineLoad(2, 0.9)} if number == 1 else {})
        finally:
            await server.stop()
