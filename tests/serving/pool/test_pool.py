"""The pool: slots, turns, broken replicas."""

import asyncio
from collections.abc import Callable

import pytest

from serving.contract.replica import ReplicaRecord
from serving.pool.pool import NoReplica, Overloaded, Pool
from serving.pool.retries import RetryBudget
from tests.support.catalog import replica


def pool(*slots: int, **settings: float) -> Pool:
    made = Pool("dep", **settings)  # type: ignore[arg-type]
    made.set_replicas(records(*slots))
    return made


def records(*slots: int) -> dict[str, ReplicaRecord]:
    made = [replica(f"http://r{n}", n, slots=count) for n, count in enumerate(slots, start=1)]
    return {record.replica_id: record for record in made}


async def hold(pool: Pool, organization: str, until: asyncio.Event, log: list[str]) -> None:
    async with pool.slot(organization):
        log.append(organization)
        await until.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_least_busy_replica_is_chosen() -> None:
    both = pool(2, 2)
    async with both.slot("a") as first, both.slot("a") as second:
        assert first is not second


async def test_never_more_requests_than_slots() -> None:
    small, done, log = pool(3), asyncio.Event(), []
    tasks = [asyncio.create_task(hold(small, "a", done, log)) for _ in range(10)]
    await settle()
    assert len(log) == 3
    assert len(small.queue) == 7
    done.set()
    await asyncio.gather(*tasks)
    assert len(log) == 10
    assert small.replicas["rep_1"].in_flight == 0


async def test_organizations_take_turns_so_that_a_flood_starves_nobody() -> None:
    small, done, log = pool(1), asyncio.Event(), []
    flood = [asyncio.create_task(hold(small, "flood", done, log)) for _ in range(50)]
    await settle()
    quiet = asyncio.create_task(hold(small, "quiet", done, log))
    await settle()
    done.set()
    await asyncio.gather(*flood, quiet)
    assert log.index("quiet") <= 2


async def test_a_full_queue_and_a_long_wait_are_overload() -> None:
    full = pool(1, queue_length_max=0)
    slow = pool(1, queue_seconds_max=0.01)
    for busy in (full, slow):
        async with busy.slot("a"):
            with pytest.raises(Overloaded):
                async with busy.slot("b"):
                    pass
        assert len(busy.queue) == 0


async def test_without_a_ready_replica_nobody_waits() -> None:
    with pytest.raises(NoReplica):
        async with pool().slot("a"):
            pass


async def test_one_who_leaves_the_queue_wastes_no_turn() -> None:
    small, done, log = pool(1), asyncio.Event(), []
    first = asyncio.create_task(hold(small, "a", done, log))
    await settle()
    leaver = asyncio.create_task(hold(small, "b", done, log))
    last = asyncio.create_task(hold(small, "c", done, log))
    await settle()
    done.set()
    await settle_one(leaver.cancel)
    await asyncio.gather(first, last)
    assert log == ["a", "c"]
    async with small.slot("d"):
        pass


async def settle_one(act: Callable[[], object]) -> None:
    act()
    await asyncio.sleep(0)


async def test_a_replica_that_fails_twice_is_out_until_one_request_tries_it() -> None:
    now = 100.0
    sick = pool(4, clock=lambda: now)  # type: ignore[arg-type]
    one = sick.replicas["rep_1"]
    one.note_failure(now)
    assert one.is_usable(now)
    one.note_failure(now)
    with pytest.raises(NoReplica):
        async with sick.slot("a"):
            pass
    now = 110.0
    async with sick.slot("canary") as tried:
        assert not one.is_usable(now)
        tried.note_success()
    assert one.is_usable(now)


async def test_a_replica_that_leaves_the_feed_gets_no_more_work_but_keeps_its_own() -> None:
    shrinking = pool(1, 1)
    async with shrinking.slot("a"), shrinking.slot("a"):
        shrinking.set_replicas(records(1))
        assert list(shrinking.replicas) == ["rep_1"]
    async with shrinking.slot("a") as left:
        assert left.record.replica_id == "rep_1"


async def test_a_new_replica_wakes_those_who_wait() -> None:
    growing, done, log = pool(1), asyncio.Event(), []
    tasks = [asyncio.create_task(hold(growing, "a", done, log)) for _ in range(4)]
    await settle()
    growing.set_replicas(records(1, 3))
    await settle()
    assert len(log) == 4
    done.set()
    await asyncio.gather(*tasks)


def test_retries_are_at_most_a_tenth_of_the_traffic() -> None:
    budget = RetryBudget()
    taken = 0
    for _ in range(1_000):
        budget.note_request()
        taken += budget.take()
    assert taken <= 0.1 * 1_000 + 10
