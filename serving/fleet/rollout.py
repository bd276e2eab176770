"""Which replicas are out of date, and how they are replaced: beside each other where there is room,
one after the other where there is not, and not at all where requests would fail meanwhile."""

import time
from collections.abc import Container
from typing import NamedTuple

import msgspec

from serving.contract.deployment_plan import Rollout
from serving.contract.records import DeploymentRecord
from serving.fleet.replica import ManagedReplica


def is_current(
    replica: ManagedReplica, deployment: DeploymentRecord, wanted: Container[str]
) -> bool:
    """Tell whether a replica runs what the deployment now asks for, where it may still run."""
    mine = replica.deployment
    return (
        mine.engine == deployment.engine
        and mine.variant_id == deployment.variant_id
        and mine.weights == deployment.weights
        and mine.slots == deployment.slots
        and mine.engine_arguments == deployment.engine_arguments
        and has_resources(mine, deployment)
        and (deployment.engine != "external" or replica.endpoint in wanted)
    )


def has_resources(mine: DeploymentRecord, wanted: DeploymentRecord) -> bool:
    """Tell whether a replica has what is declared. An earlier release declared no context; the same
    arguments still gave it the right one."""
    resources = wanted.resources
    if mine.resources.context_tokens is None:
        resources = msgspec.structs.replace(resources, context_tokens=None)
    return mine.resources == resources


def least_useful(replicas: list[ManagedReplica]) -> list[ManagedReplica]:
    """Return replicas not yet ready first, then the youngest."""
    return sorted(
        replicas, key=lambda r: (r.state == "ready", -r.started_at.timestamp(), r.replica_id)
    )


START_MARGIN = 1.5
"""How many times the last start requests must be able to wait for a recreation."""


class RolloutPlan(NamedTuple):
    """What would happen, and why where it is not the usual."""

    rollout: Rollout
    reason: str = ""


def plan_rollout(
    deployment: DeploymentRecord, *, has_room: bool, ready_count: int, load_seconds: float | None
) -> RolloutPlan:
    """Return how the replicas would be replaced now. `has_room` tells whether a successor fits
    beside them, and `load_seconds` how long the last start took, None if that is not known.
    """
    if has_room or ready_count == 0:
        return RolloutPlan("rolling")
    if ready_count > 1:
        return RolloutPlan("rolling", "one at a time, since a successor has no room beside them")
    if load_seconds is None:
        words = "there is no room for a successor, and how long a start takes is not known yet"
        return RolloutPlan("refused", words)
    timeouts = deployment.timeouts
    # Requests that wait for a slot already keep their time-out when no replica is ready anymore.
    waits = min(timeouts.queue_seconds, timeouts.wake_seconds)
    needed = START_MARGIN * load_seconds
    if waits > needed:
        words = f"there is no room for a successor: requests wait about {load_seconds:.0f} s for it"
        return RolloutPlan("recreate", words)
    return RolloutPlan(
        "refused",
        f"there is no room for a successor, and requests wait {waits:.0f} s at most while a start"
        f" takes {load_seconds:.0f} s: set queue_seconds and wake_seconds above {needed:.0f}, or"
        " stop the deployment first",
    )


def make_room(
    deployment: DeploymentRecord,
    own: list[ManagedReplica],
    outdated: list[ManagedReplica],
    load_seconds: float | None,
    last_end: float,
) -> None:
    """Drain one outdated replica where a successor waits for its room and requests can do without
    it; a successor that goes on waiting says why. One at a time: nothing is drained while another
    leaves or is on its way, nor for `room_seconds` after the `last_end` of one, a monotonic time.
    """
    waiting = [replica for replica in own if replica.no_room and not replica.is_leaving]
    going = [replica for replica in outdated if replica.state == "ready"]
    is_moving = any(r.is_leaving or (r.state != "ready" and not r.no_room) for r in own)
    if not waiting or not going or is_moving:
        return
    if time.monotonic() < last_end + waiting[0].services.timings.room_seconds:
        return
    leaver = max(going, key=lambda replica: (replica.started_at, replica.replica_id))
    ready_count = sum(replica.state == "ready" for replica in own)
    plan = plan_rollout(
        deployment, has_room=False, ready_count=ready_count, load_seconds=load_seconds
    )
    reason = plan.reason if plan.rollout == "refused" else ""
    is_idle = leaver.health is not None and leaver.health.is_idle
    if plan.rollout == "recreate" and not is_idle:
        reason = "waits for a moment without requests"
    for replica in waiting:
        replica.rollout_reason = reason
    if not reason:
        leaver.drain()
