"""A pool whose deployment sleeps: who asks waits in its queue, and is told when to come back."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from serving.contract.records import DeploymentRecord, DeploymentTimeouts
from serving.contract.replica import ReplicaRecord
from serving.pool.pool import Pool
from serving.pool.slot_request import NoReadyReplica, SlotRequest, TenantQueueFull
from serving.pool.tier_queue import QueueLimits
from tests.fixtures import catalog
from tests.fixtures.demand import demand_of

READY = catalog.replica("http://r", slots=1)


@dataclass
class Clock:
    """Monotonic seconds, moved by hand."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def sleeper(wake_seconds: float = 60.0, **fields: Any) -> DeploymentRecord:
    made = catalog.deployment(timeouts=DeploymentTimeouts(wake_seconds=wake_seconds))
    return msgspec.structs.replace(made, **{"sleep_after_seconds": 300.0} | fields)


def told(state: Any, load_seconds: float | None = 40.0, seconds: int = 0) -> ReplicaRecord:
    started_at = READY.started_at + timedelta(seconds=seconds)
    return msgspec.structs.replace(
        READY, state=state, load_seconds=load_seconds, started_at=started_at
    )


def asleep(clock: Clock, load_seconds: float | None = 40.0, **settings: Any) -> Pool:
    made = Pool("dep_var_demo", clock=clock, **settings)
    made.configure(sleeper())
    made.set_replicas({"dep_var_demo": told("asleep", load_seconds)})
    return made


async def served(pool: Pool, organization: str = "a") -> str:
    async with pool.slot(SlotRequest(organization)):
        return organization


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_asks_waits_and_is_served_once_it_woke() -> None:
    heard: list[int] = []
    pool = asleep(Clock(), on_demand=lambda: heard.append(1))
    heard.clear()
    waiting = [asyncio.create_task(served(pool, name)) for name in ("a", "b")]
    await settle()
    assert heard, "the fleet is told at once"
    assert demand_of(pool).tiers["default"]
    assert pool.capabilities == frozenset(READY.capabilities)
    pool.set_replicas({})  # between two states nothing may be told of any
    pool.set_replicas({"rep_1": told("pending")})
    pool.set_replicas({"rep_1": told("failed")})
    pool.set_replicas({"rep_2": told("loading")})
    await settle()
    assert len(pool.queue) == 2
    pool.set_replicas({"rep_2": told("ready")})
    assert sorted(await asyncio.gather(*waiting)) == ["a", "b"]
    assert not demand_of(pool).tiers["default"]


async def test_the_bounds_of_the_queue_hold_as_ever() -> None:
    pool = asleep(Clock(), bounds=QueueLimits(organization_requests=1))
    first = asyncio.create_task(served(pool))
    await settle()
    with pytest.raises(TenantQueueFull):
        await served(pool)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert len(pool.queue) == 0


@pytest.mark.parametrize(("load_seconds", "expected"), [(40.0, 40.0), (None, 0.01)])
async def test_who_waited_in_vain_is_told_when_it_should_be_ready(
    load_seconds: float | None, expected: float
) -> None:
    pool = asleep(Clock(), load_seconds)
    pool.configure(sleeper(wake_seconds=0.01))
    with pytest.raises(NoReadyReplica) as refused:
        await served(pool)
    assert refused.value.seconds == expected


def test_what_is_left_of_loading_is_predicted() -> None:
    clock = Clock()
    pool = asleep(clock)
    assert pool.ready_in_seconds == 40.0
    pool.set_replicas({"rep_1": told("pending")})
    clock.now += 5
    assert pool.ready_in_seconds == 40.0, "it has not begun"
    pool.set_replicas({"rep_1": told("loading", seconds=5)})
    clock.now += 30
    assert pool.ready_in_seconds == 10.0
    clock.now += 30
    assert pool.ready_in_seconds == 0.0, "any moment now"
    pool.set_replicas({"rep_1": told("ready", seconds=5)})
    assert pool.ready_in_seconds is None


async def test_an_operators_stop_sends_all_away() -> None:
    pool = asleep(Clock())
    waiting = asyncio.create_task(served(pool))
    await settle()
    pool.configure(sleeper(replicas_min=0))
    with pytest.raises(NoReadyReplica) as refused:
        await waiting
    assert refused.value.seconds is None
    with pytest.raises(NoReadyReplica):
        await served(pool)


async def test_nobody_waits_for_what_no_fleet_told_of() -> None:
    pool = Pool("dep_var_demo")
    pool.configure(sleeper())
    with pytest.raises(NoReadyReplica):
        await served(pool)


async def test_a_wait_for_the_first_replica_does_not_count_as_a_slow_queue() -> None:
    clock = Clock()
    pool = asleep(clock)
    early = [asyncio.create_task(served(pool, f"org_{n}")) for n in range(40)]
    await settle()
    clock.now += 50
    pool.set_replicas({"rep_1": told("ready")})
    await asyncio.gather(*early)
    async with pool.slot(SlotRequest("a")):
        # By 40 slots in 50 s the last of these would come after its deadline.
        late = [asyncio.create_task(served(pool, f"org_{n}")) for n in range(40)]
        await settle()
    await asyncio.gather(*late)
    assert not pool.queue.refusals


async def test_who_waits_for_a_deployment_that_is_deleted_is_refused_at_once() -> None:
    pool = asleep(Clock())
    waiting = asyncio.create_task(served(pool))
    await settle()
    assert not pool.is_idle
    pool.retire()
    with pytest.raises(NoReadyReplica):
        await waiting
    assert pool.is_idle
