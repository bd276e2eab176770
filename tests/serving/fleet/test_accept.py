"""What control tells of deployments is acted on once it is whole."""

from pathlib import Path

import aiohttp
import msgspec

from serving.contract.credential import ServiceAuthenticator
from serving.contract.records import DeploymentRecord
from serving.feed.changes import ChangeBatch, RecordChange
from serving.fleet.config import FleetConfig
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.state_store import FleetStore, StoredFleet
from tests.fixtures import catalog


def deployment(name: str) -> DeploymentRecord:
    return msgspec.structs.replace(catalog.deployment(), deployment_id=name)


def told(*names: str) -> tuple[RecordChange, ...]:
    return tuple(RecordChange("deployment", name, deployment(name)) for name in names)


async def test_a_fleet_takes_its_own_deployments_alone(tmp_path: Path) -> None:
    config = FleetConfig(
        "http://control", "", ServiceAuthenticator(()), "127.0.0.1", 1, tmp_path, 20_000, 1,
        fleet_id="eu-1",
    )  # fmt: skip
    own = msgspec.structs.replace(deployment("dep_2"), fleet_id="eu-1")
    changes = (*told("dep_1"), RecordChange("deployment", "dep_2", own))
    store = FleetStore(tmp_path)
    async with aiohttp.ClientSession() as session:
        fleet = FleetReconciler(config, {}, store, session)
        fleet.adopt(StoredFleet())
        fleet.apply(ChangeBatch(3, True, changes))
        assert [one.deployment_id for one in fleet.deployments()] == ["dep_2"]


async def test_half_a_snapshot_ends_no_replica(tmp_path: Path) -> None:
    """A fleet lets go of replicas whose deployment it does not know."""
    config = FleetConfig(
        "http://control", "", ServiceAuthenticator(()), "127.0.0.1", 1, tmp_path, 20_000, 1
    )
    store = FleetStore(tmp_path)
    async with aiohttp.ClientSession() as session:
        fleet = FleetReconciler(config, {}, store, session)
        fleet.adopt(StoredFleet(deployments=(deployment("dep_1"), deployment("dep_2"))))
        known = []
        for batch in (
            ChangeBatch(3, True, told("dep_2"), is_last=False),
            ChangeBatch(3, True, told("dep_3"), is_first=False),
            ChangeBatch(4, False, (RecordChange("deployment", "dep_2", None),)),
        ):
            fleet.apply(batch)
            names = ("dep_1", "dep_2", "dep_3")
            known.append([name for name in names if fleet.deployment(name) is not None])
    assert known == [["dep_1", "dep_2"], ["dep_2", "dep_3"], ["dep_3"]]
