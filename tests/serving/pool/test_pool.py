"""The pool: slots, turns, broken replicas."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from serving.contract.replica import ReplicaRecord
from serving.pool.pool import NoReplica, Overloaded, Pool, Quarantined
from serving.pool.retries import RetryBudget
from serving.pool.suspicion import Fingerprint
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
        assert first.replica is not second.replica


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


async def breaks(pool: Pool, organization: str, *, at_fault: bool = False) -> None:
    async with pool.slot(organization) as slot:
        slot.broke(is_at_fault=at_fault)


def timed(now: list[float], *slots: int) -> Pool:
    return pool(*slots, clock=lambda: now[0])  # type: ignore[arg-type]


async def test_a_replica_that_breaks_twice_is_out_until_one_request_tries_it() -> None:
    now = [100.0]
    both = timed(now, 4, 4)
    sick = both.replicas["rep_1"]
    sick.note_incident("a", now[0], is_at_fault=True)
    assert sick.is_usable(now[0])
    sick.note_incident("a", now[0], is_at_fault=True)
    async with both.slot("a") as first, both.slot("a") as second:
        assert {first.replica, second.replica} == {both.replicas["rep_2"]}
        now[0] = 110.0
        async with both.slot("canary") as tried:
            assert tried.replica is sick
            assert not sick.is_usable(now[0])
            tried.works()
            assert sick.is_usable(now[0])


async def test_one_break_of_many_streams_is_one_incident() -> None:
    one = pool(32)
    async with AsyncExitStack() as stack:
        slots = [await stack.enter_async_context(one.slot(f"org {n}")) for n in range(32)]
        for slot in slots:
            slot.broke()
    assert (one.replicas["rep_1"].incidents, one.replicas["rep_1"].is_on_trial) == (1, False)


async def test_where_all_are_ejected_ejection_is_ignored() -> None:
    only = pool(2)
    for _ in range(5):
        await breaks(only, "a", at_fault=True)
    async with only.slot("b") as slot, only.slot("c"):
        assert slot.replica.is_on_trial


async def test_requests_of_one_customer_eject_nothing_and_are_refused_themselves() -> None:
    now = [100.0]
    shared = timed(now, 8)
    for _ in range(2):
        await breaks(shared, "poison")
    assert shared.replicas["rep_1"].is_usable(now[0])
    with pytest.raises(Quarantined) as caught:
        async with shared.slot("poison"):
            pass
    assert 0 < caught.value.seconds <= 600
    async with shared.slot("poison", feature="format"), shared.slot("neighbour"):
        pass
    now[0] += caught.value.seconds + 1
    async with shared.slot("poison") as slot:
        slot.works()
    await breaks(shared, "poison")
    async with shared.slot("poison"):
        pass


async def test_who_met_a_dying_replica_is_not_suspected_once_it_is_gone() -> None:
    dying = pool(8)
    for _ in range(2):
        await breaks(dying, "unlucky")
    with pytest.raises(Quarantined):
        async with dying.slot("unlucky"):
            pass
    dying.set_replicas({"rep_2": replica("http://r2", 2)})
    async with dying.slot("unlucky"):
        pass


async def test_what_breaks_one_replica_after_another_is_refused() -> None:
    dying = pool(8)
    await breaks(dying, "poison")
    dying.set_replicas({"rep_2": replica("http://r2", 2)})
    await breaks(dying, "poison")
    dying.set_replicas({"rep_3": replica("http://r3", 3)})
    with pytest.raises(Quarantined):
        async with dying.slot("poison"):
            pass


async def test_what_another_replica_serves_was_the_first_ones_fault() -> None:
    both = pool(1, 1)
    sick = both.replicas["rep_1"]
    for _ in range(2):
        both.note_incident(sick, Fingerprint("a", "plain"), is_at_fault=False)
    assert not sick.is_on_trial
    both.convict(["rep_1", "gone"])
    assert sick.is_on_trial


async def test_who_waits_is_woken_when_an_ejection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.pool.replica.EJECT_SECONDS", 0.05)
    both, done, log = pool(1, 1), asyncio.Event(), []
    sick = both.replicas["rep_1"]
    for _ in range(2):
        both.note_incident(sick, Fingerprint("a", "plain"), is_at_fault=True)
    tasks = [asyncio.create_task(hold(both, name, done, log)) for name in "ab"]
    await settle()
    assert len(log) == 1
    async with asyncio.timeout(2):
        while len(log) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    done.set()
    await asyncio.gather(*tasks)


async def test_a_replica_that_leaves_the_feed_gets_no_more_work_but_keeps_its_own() -> None:
    shrinking = pool(1, 1)
    async with shrinking.slot("a"), shrinking.slot("a"):
        shrinking.set_replicas(records(1))
        assert list(shrinking.replicas) == ["rep_1"]
    async with shrinking.slot("a") as left:
        assert left.replica.record.replica_id == "rep_1"


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
