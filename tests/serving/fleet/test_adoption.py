"""Nothing is orphaned: what a life of the fleet started, the next one adopts or ends."""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from serving.contract import SCHEMA
from serving.contract.codec import decode, encode
from serving.contract.replica import ReplicaRecord
from serving.contract.slot_shares import (
    DemandReport,
    DeploymentDemand,
    OrganizationDemand,
    ReplicaUsage,
    SlotSharesReply,
)
from serving.contract.units import Tier
from serving.fleet.adoption import GONE_SECONDS, end_orphans
from serving.fleet.engine_process import FOLDER_VARIABLE, REPLICA_VARIABLE, find_groups
from serving.fleet.state_store import FleetStore, read_file
from tests.fixtures.fleet_process import OF_A_GATEWAY, Control, FleetProcess, running_fleet
from tests.fixtures.waiting import eventually, wait_until
from tests.serving.fleet.test_reconciler import PATIENT, changed
from tests.serving.fleet.test_state_store import FLEET

FAMILY = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "time.sleep(600)"
)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The leader of a replica's group of two processes."""
    marks = {REPLICA_VARIABLE: "rep_1", FOLDER_VARIABLE: str(tmp_path)}
    command = [sys.executable, "-c", FAMILY]
    with subprocess.Popen(command, start_new_session=True, env=os.environ | marks) as leader:
        try:
            wait_until(lambda: len(members(tmp_path)) == 2)
            yield leader
        finally:
            for pid in members(tmp_path):
                os.kill(pid, signal.SIGKILL)
            leader.kill()


def members(folder: Path) -> set[int]:
    """Return all processes of the replicas of a folder."""
    groups = [group for found in find_groups(folder).values() for group in found]
    return {member.pid for group in groups for member in group.members}


async def test_a_whole_group_is_ended_and_seen_gone(
    family: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert list(find_groups(tmp_path)) == ["rep_1"]
    assert await end_orphans(tmp_path, {"rep_1"})
    assert len(members(tmp_path)) == 2
    assert await end_orphans(tmp_path, set())
    assert members(tmp_path) == set()
    assert family.wait(10) == -signal.SIGKILL


async def test_what_a_dead_leader_left_is_ended_and_other_fleets_keep_theirs(
    family: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    os.kill(family.pid, signal.SIGKILL)
    family.wait()
    [child] = members(tmp_path)
    assert await end_orphans(tmp_path / "other", set())
    assert members(tmp_path) == {child}
    assert await end_orphans(tmp_path, set())
    assert members(tmp_path) == set()


def test_state_of_a_newer_release_is_kept_aside_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    newer = msgspec.json.encode({"schema": SCHEMA + 1, "replicas": "said otherwise"})
    for _ in range(2):
        path.write_bytes(newer)
        assert read_file(path, type(FLEET), default=None) is None
        assert not path.exists()
    aside = [tmp_path / "fleet.newer", tmp_path / "fleet.newer.2"]
    assert [each.read_bytes() for each in aside] == [newer, newer]


def test_a_replica_is_read_from_its_own_file_unless_a_newer_release_wrote_it(
    tmp_path: Path,
) -> None:
    store = FleetStore(tmp_path)
    store.open()
    [replica] = FLEET.replicas
    assert store.replica("r1") is None
    assert store.put_replica(replica).result()
    assert store.replica("r1") == replica
    newer = msgspec.structs.replace(replica, schema=SCHEMA + 1)
    assert store.put_replica(newer).result()
    assert store.replica("r1") is None
    assert store.put_replica(replica).result()
    store.forget_other_replicas({"r1"})
    store.forget_other_replicas(())
    store.close()
    assert not list((tmp_path / "replicas").glob("*.json"))


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[tuple[Control, FleetProcess]]:
    """A fleet that was killed while its two replicas run."""
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(changed(replicas_min=2))
        await process.ready(2)
        await process.end(signal.SIGKILL)
        yield control, process


def lose(path: Path, how: str) -> None:
    """Make a file of the fleet unreadable, or such as a newer release would write."""
    if how == "deleted":
        path.unlink()
    elif how == "corrupted":
        path.write_bytes(path.read_bytes()[:100])
    else:
        fields = msgspec.json.decode(path.read_bytes())
        path.write_bytes(msgspec.json.encode(fields | {"schema": SCHEMA + 1}))


@pytest.mark.integration
@pytest.mark.parametrize("how", ["corrupted", "deleted", "newer"])
async def test_without_its_state_a_fleet_adopts_what_has_a_file_and_ends_the_rest_first(
    fleet: tuple[Control, FleetProcess], how: str
) -> None:
    _, process = fleet
    kept, unknown = process.stored().replicas
    pids = {id_: process.leader(id_) for id_ in (kept.replica_id, unknown.replica_id)}
    files = process.directory / "replicas"
    lose(process.state_file, how)
    lose(files / f"{unknown.replica_id}.json", how)
    # A stopped engine ends by SIGKILL alone.
    os.kill(pids[unknown.replica_id], signal.SIGSTOP)
    await process.start()
    ready = {one.replica_id for one in await process.ready(2)}
    assert (kept.replica_id in ready, unknown.replica_id in ready) == (True, False)
    assert len(process.engines()) == 2
    assert process.leader(kept.replica_id) == pids[kept.replica_id]
    assert pids[unknown.replica_id] not in process.engines()
    assert {path.stem for path in files.glob("*.json")} == ready
    aside = process.state_file.with_suffix(".newer" if how == "newer" else ".unreadable")
    assert aside.exists() == (how != "deleted")


@contextmanager
def orphans_without_end(folder: Path) -> Iterator[None]:
    """Have a new orphan for each that is ended, as of one that no signal ends."""
    marks = f"{FOLDER_VARIABLE}={shlex.quote(str(folder))} {REPLICA_VARIABLE}=orphan"
    script = f"while :; do {marks} setsid sleep 600 & sleep 0.02; done"
    with subprocess.Popen(("/bin/sh", "-c", script), start_new_session=True) as shell:
        try:
            yield
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            for group in find_groups(folder).get("orphan", ()):
                group.kill()


def demand_of(replicas: Sequence[ReplicaRecord]) -> DemandReport:
    """Return the report of a gateway where somebody waits and that holds no slot yet."""
    waiting: dict[Tier, dict[str, OrganizationDemand]] = {
        "default": {"org": OrganizationDemand(1, 0, 5)}
    }
    held = {one.replica_id: ReplicaUsage(0, 0) for one in replicas}
    demand = DeploymentDemand(held, waiting)
    return DemandReport("g", time.time_ns(), {replicas[0].deployment_id: demand})


@pytest.mark.integration
async def test_a_fleet_that_waits_for_orphans_to_end_grants_slots_and_sends_heartbeats(
    fleet: tuple[Control, FleetProcess],
) -> None:
    control, process = fleet
    engines = set(process.engines())
    headers = {"authorization": f"Bearer {OF_A_GATEWAY}"}
    with orphans_without_end(process.directory):
        await process.start()
        async with asyncio.timeout(GONE_SECONDS - 5):
            replicas = await process.ready(2)

            async def slots() -> int:
                url, report = f"{process.base}/demand", encode(demand_of(replicas))
                async with process.session.post(url, data=report, headers=headers) as answer:
                    assert answer.status == 200
                    return sum(decode(await answer.read(), SlotSharesReply).shares.values())

            await eventually(slots, every_seconds=0.1)
            control.generations.pass_to("another host")

            async def is_superseded() -> bool:
                return "superseded" in (await process.readiness())[1]

            await eventually(is_superseded, every_seconds=0.1)
    assert set(process.engines()) == engines


@pytest.mark.full
@pytest.mark.integration
async def test_what_a_fleet_without_control_has_lost_is_kept_until_it_may_act(
    fleet: tuple[Control, FleetProcess],
) -> None:
    control, process = fleet
    engines = set(process.engines())
    shutil.rmtree(process.directory / "replicas")
    for name in ("fleet.json", "ownership.json"):
        (process.directory / name).unlink()
    port = int(control.url.rpartition(":")[2])
    await control.stop()
    await process.start()

    async def waits() -> bool:
        return "waits for control" in (await process.readiness())[1]

    await eventually(waits)
    assert set(process.engines()) == engines
    await control.start(port)
    await process.ready(2)
    assert len(process.engines()) == 2
    assert not engines.intersection(process.engines())
