"""No room, and how replicas are replaced: beside each other, one after the other, or not at all."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.contract.codec import decode
from serving.contract.deployment_plan import DeploymentPlan, DeploymentPlans
from serving.contract.records import DeploymentRecord, DeploymentTimeouts
from serving.contract.replica import ReplicaRecord, State
from serving.contract.resources import ReplicaResources
from serving.engine.probe import EngineHealth
from serving.fleet.config import FleetTimings
from serving.fleet.replica import ManagedReplica
from serving.fleet.rollout import has_resources, make_room, plan_rollout
from tests.fixtures.fleet_process import CONTROL_CREDENTIAL, FleetProcess, running_fleet
from tests.fixtures.waiting import eventually
from tests.serving.fleet.test_placement import replica_of, services_of
from tests.serving.fleet.test_reconciler import DEPLOYMENT, PATIENT, changed, failed

WAITS = DeploymentTimeouts(queue_seconds=60.0, wake_seconds=60.0)
TIMINGS = FleetTimings()
ONE_PORT = {"PENSTOCK_REPLICA_COUNT_MAX": "1"}


@pytest.mark.parametrize(
    ("has_room", "ready", "load", "timeouts", "rollout"),
    [
        (True, 1, None, (30.0, 0.0), "rolling"),
        (False, 0, None, (30.0, 0.0), "rolling"),
        (False, 2, None, (30.0, 0.0), "rolling"),
        (False, 1, None, (60.0, 60.0), "refused"),
        (False, 1, 30.0, (60.0, 60.0), "recreate"),
        (False, 1, 30.0, (60.0, 0.0), "refused"),
        (False, 1, 30.0, (60.0, 45.0), "refused"),
        (False, 1, 30.0, (45.0, 60.0), "refused"),
    ],
)
def test_a_recreation_is_refused_unless_requests_may_wait_for_it(
    has_room: bool, ready: int, load: float | None, timeouts: tuple[float, float], rollout: str
) -> None:
    queue, wake = timeouts
    deployment = changed(timeouts=DeploymentTimeouts(queue_seconds=queue, wake_seconds=wake))
    plan = plan_rollout(deployment, has_room=has_room, ready_count=ready, load_seconds=load)
    assert plan.rollout == rollout
    assert (plan.reason == "") == (has_room or ready == 0)


def standing(state: State, no_room: str = "") -> ManagedReplica:
    """A replica of the fleet at its default timings."""
    replica = replica_of(f"{state}-{time.monotonic_ns()}", 1, services_of(None, timings=TIMINGS))
    replica.state, replica.no_room = state, no_room
    return replica


def health(running: int) -> EngineHealth:
    return EngineHealth(running, 0, 0, 0, 0.0)


def test_room_is_made_once_what_waits_could_take_the_room_of_the_one_before() -> None:
    old, new = [standing("ready"), standing("ready")], standing("pending", "no room")

    def leavers(seconds_since_end: float) -> int:
        since = time.monotonic() - seconds_since_end
        make_room(DEPLOYMENT, [*old, new], old, None, since)
        return sum(replica.is_leaving for replica in old)

    assert leavers(TIMINGS.room_seconds - 5) == 0
    assert [leavers(TIMINGS.room_seconds) for _ in range(2)] == [1, 1]


def test_a_recreation_begins_in_a_moment_without_requests() -> None:
    deployment = changed(timeouts=WAITS)
    old, new = standing("ready"), standing("pending", "no room")
    for seen in (None, health(running=1)):
        old.health = seen
        make_room(deployment, [old, new], [old], 10.0, 0.0)
        assert not old.is_leaving
        assert new.rollout_reason == "waits for a moment without requests"
    old.health = health(running=0)
    make_room(deployment, [old, new], [old], 10.0, 0.0)
    assert (old.is_leaving, new.rollout_reason) == (True, "")


async def plans(process: FleetProcess) -> dict[str, DeploymentPlan]:
    headers = {"authorization": f"Bearer {CONTROL_CREDENTIAL}"}
    async with process.session.get(f"{process.base}/plans", headers=headers) as answer:
        assert answer.status == 200
        found = decode(await answer.read(), DeploymentPlans)
    return {plan.deployment_id: plan for plan in found.plans}


async def pending(process: FleetProcess, words: str) -> ReplicaRecord:
    """Wait for a replica that is pending for a reason."""

    async def is_pending() -> list[ReplicaRecord]:
        found = await process.replicas()
        return [one for one in found if one.state == "pending" and words in one.reason]

    [replica] = await eventually(is_pending, f"pending: {words}")
    return replica


def other(**fields: Any) -> DeploymentRecord:
    return msgspec.structs.replace(changed(**fields), deployment_id="dep_2", variant_id="var_2")


@pytest.mark.integration
async def test_no_room_is_no_failure_and_ends_as_soon_as_there_is_some(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT, **ONE_PORT) as (control, process):
        control.deploy(DEPLOYMENT)
        [first] = await process.ready()
        control.deploy(DEPLOYMENT, other())
        waiting = await pending(process, "no room: 1 of 1 replicas")
        control.deploy(changed(replicas_min=0), other())

        async def is_placed() -> bool:
            ready = [one.replica_id for one in await process.replicas() if one.state == "ready"]
            return ready == [waiting.replica_id]

        await eventually(is_placed)
        assert first.deployment_id != waiting.deployment_id
        assert await process.metric("penstock_fleet_restarts_total") == 0


@pytest.mark.integration
async def test_gpus_that_are_not_there_are_waited_for(tmp_path: Path) -> None:
    # Whatever this machine has: by this name no GPU can be given.
    hidden = {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}
    async with running_fleet(tmp_path / "fleet", **PATIENT, **hidden) as (control, process):
        control.deploy(changed(resources=ReplicaResources("H100", 2)))
        await pending(process, "no room: needs 2 × H100, 0 free")
        plan = (await plans(process))["dep_1"]
        assert (plan.needs, plan.rollout) == ("2 × H100", "rolling")
        assert plan.room.startswith("no room: needs 2 × H100, 0 free")
        control.deploy(DEPLOYMENT)
        await process.ready()


@pytest.mark.integration
async def test_without_room_a_replica_is_recreated_only_where_requests_can_wait(
    tmp_path: Path,
) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT, **ONE_PORT) as (control, process):
        control.deploy(DEPLOYMENT)
        [first] = await process.ready()
        assert (await plans(process))["dep_1"].rollout == "refused"
        control.deploy(changed(slots=8))
        waiting = await pending(process, "set queue_seconds and wake_seconds above")
        assert [one.replica_id for one in await process.ready()] == [first.replica_id]
        control.deploy(changed(slots=8, timeouts=WAITS))

        async def is_replaced() -> bool:
            return [one.slots for one in await process.ready()] == [8]

        await eventually(is_replaced)
        [second] = await process.ready()
        assert second.replica_id == waiting.replica_id
        assert (await plans(process))["dep_1"].rollout == "recreate"


@pytest.mark.integration
async def test_without_room_one_replica_at_a_time_is_replaced(tmp_path: Path) -> None:
    ports = {"PENSTOCK_REPLICA_COUNT_MAX": "3", "PENSTOCK_FLEET_ROOM_SECONDS": "20"}
    async with running_fleet(tmp_path / "fleet", **PATIENT, **ports) as (control, process):
        control.deploy(changed(replicas_min=3))
        await process.ready(3)
        control.deploy(changed(replicas_min=3, slots=8))
        ready_counts = set()

        async def is_next_ready() -> bool:
            ready = [one.slots for one in await process.replicas() if one.state == "ready"]
            ready_counts.add(len(ready))
            return 8 in ready

        await eventually(is_next_ready)
        assert min(ready_counts) == 2


@pytest.mark.integration
@pytest.mark.vllm
async def test_a_start_that_cannot_succeed_is_refused_once_and_tried_again_after_a_change(
    tmp_path: Path,
) -> None:
    gpus = changed(engine="vllm", engine_arguments=(), resources=ReplicaResources("H100", 2))
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(gpus)
        [refused] = await eventually(lambda: failed(process))
        assert "needs 2 × H100, and vLLM is installed for the CPU" in refused.reason
        await asyncio.sleep(0.5)  # five rounds, each of which would start another
        assert [one.replica_id for one in await process.replicas()] == [refused.replica_id]
        assert await process.metric("penstock_fleet_restarts_total") == 0
        control.deploy(DEPLOYMENT)
        await process.ready()


@pytest.mark.parametrize(
    ("mine", "wanted", "same"),
    [
        (ReplicaResources(), ReplicaResources(context_tokens=512), True),
        (ReplicaResources(), ReplicaResources("H100", 2, context_tokens=512), False),
        (ReplicaResources(context_tokens=512), ReplicaResources(context_tokens=1_024), False),
    ],
)
def test_an_upgrade_that_only_declares_the_context_replaces_nothing(
    mine: ReplicaResources, wanted: ReplicaResources, same: bool
) -> None:
    assert has_resources(changed(resources=mine), changed(resources=wanted)) == same
