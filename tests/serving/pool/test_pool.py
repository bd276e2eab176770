"""The pool: slots, turns, broken replicas."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from serving.contract.replica import ReplicaRecord
from serving.engine.events import TokenUsage
from serving.pool.health import FORGET_SECONDS
from serving.pool.pool import Pool
from serving.pool.replicas import Replica
from serving.pool.slot_request import (
    NoReadyReplica,
    PoolOverloaded,
    RequestFingerprint,
    RequestQuarantined,
    SlotRequest,
    TenantQueueFull,
)
from serving.pool.tier_queue import QueueLimits
from tests.fixtures import catalog
from tests.fixtures.catalog import replica


def pool(*slots: int, **settings: Any) -> Pool:
    made = Pool("dep", **settings)
    made.set_replicas(records(*slots))
    return made


def records(*slots: int) -> dict[str, ReplicaRecord]:
    made = [replica(f"http://r{n}", n, slots=count) for n, count in enumerate(slots, start=1)]
    return {record.replica_id: record for record in made}


async def hold(
    pool: Pool, organization: str, until: asyncio.Event, log: list[str], **request: Any
) -> None:
    async with pool.slot(SlotRequest(organization, **request)):
        log.append(organization)
        await until.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_least_busy_replica_is_chosen() -> None:
    both = pool(2, 2)
    async with both.slot(SlotRequest("a")) as first, both.slot(SlotRequest("a")) as second:
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


@pytest.mark.parametrize(
    "tokens", [None, TokenUsage(100, output=1_000)], ids=["cut off", "longest"]
)
async def test_who_comes_when_all_slots_are_taken_has_the_first_or_second_that_ends(
    tokens: TokenUsage | None,
) -> None:
    """Their holder has hundreds of requests waiting."""
    now, log = [0.0], list[str]()
    small, never = pool(8, clock=lambda: now[0]), asyncio.Event()
    ended = asyncio.Queue[None]()

    async def run() -> None:
        request = SlotRequest("flood", input_tokens=100, output_tokens_max=1_000)
        async with small.slot(request) as slot:
            await ended.get()
            slot.usage_known(tokens)

    flood = [asyncio.create_task(run()) for _ in range(508)]
    await settle()
    now[0] += 60.0
    quiet = asyncio.create_task(hold(small, "quiet", never, log))
    await settle()
    for _ in range(2):
        ended.put_nowait(None)
        await settle()
    assert log == ["quiet"]
    for task in (quiet, *flood):
        task.cancel()
    await asyncio.gather(quiet, *flood, return_exceptions=True)


@pytest.mark.parametrize(("seconds_max", "is_refused"), [(30.0, False), (5.0, True)])
async def test_it_is_refused_before_only_where_they_would_end_after_its_deadline(
    seconds_max: float, is_refused: bool
) -> None:
    """A slot ends every five seconds."""
    now, log = [0.0], list[str]()
    small, ended = pool(8, clock=lambda: now[0]), asyncio.Queue[None]()

    async def run() -> None:
        async with small.slot(SlotRequest("flood", seconds_max=1e6)):
            await ended.get()

    flood = [asyncio.create_task(run()) for _ in range(200)]
    await settle()
    for _ in range(40):
        now[0] += 5.0
        ended.put_nowait(None)
        await settle()
    asked = hold(small, "quiet", asyncio.Event(), log, seconds_max=seconds_max)
    quiet = asyncio.create_task(asked)
    await settle()
    assert quiet.done() == is_refused
    for _ in range(2):
        ended.put_nowait(None)
        await settle()
    assert log == ([] if is_refused else ["quiet"])
    for task in (quiet, *flood):
        task.cancel()
    [result, *_] = await asyncio.gather(quiet, *flood, return_exceptions=True)
    assert isinstance(result, PoolOverloaded) == is_refused


async def test_a_wait_ends_at_its_deadline() -> None:
    slow = pool(1)
    async with slow.slot(SlotRequest("a")):
        with pytest.raises(PoolOverloaded) as caught:
            async with slow.slot(SlotRequest("b", seconds_max=0.01)):
                pass
    assert caught.value.reason == "waited"
    assert len(slow.queue) == 0


async def test_an_organization_fills_its_own_part_of_the_queue_and_no_more() -> None:
    small, done, log = pool(1, bounds=QueueLimits(organization_requests=3)), asyncio.Event(), []
    tasks = [asyncio.create_task(hold(small, "flood", done, log)) for _ in range(4)]
    await settle()
    with pytest.raises(TenantQueueFull):
        await hold(small, "flood", done, log)
    tasks.append(asyncio.create_task(hold(small, "quiet", done, log)))
    await settle()
    assert len(small.queue) == 4
    done.set()
    await asyncio.gather(*tasks)


async def test_a_full_queue_gives_up_the_last_of_whoever_has_most_waiting() -> None:
    small, done, log = pool(1, bounds=QueueLimits(requests=4)), asyncio.Event(), []
    first = asyncio.create_task(hold(small, "flood", done, log))
    await settle()
    flood = [asyncio.create_task(hold(small, "flood", done, log)) for _ in range(4)]
    await settle()
    quiet = asyncio.create_task(hold(small, "quiet", done, log))
    await settle()
    assert [task.done() for task in flood] == [False, False, False, True]
    with pytest.raises(PoolOverloaded, match="outweighed"):
        await flood[-1]
    with pytest.raises(PoolOverloaded, match="queue_full"):
        await hold(small, "flood", done, log)
    done.set()
    await asyncio.gather(first, *flood[:3], quiet)


async def test_a_turn_that_would_come_too_late_is_refused_at_once_and_says_when_to_come() -> None:
    now = [100.0]
    small, log = pool(1, clock=lambda: now[0]), []
    turns = [asyncio.Event() for _ in range(12)]
    tasks = [asyncio.create_task(hold(small, "a", turn, log)) for turn in turns]
    for turn in turns[:10]:
        await settle()
        now[0] += 2.0
        turn.set()
    await settle()
    assert len(small.queue) == 1
    with pytest.raises(
        PoolOverloaded
    ) as caught:  # one waits, each takes two seconds: 2 s before it
        await hold(small, "a", turns[0], log, seconds_max=1.5)
    assert caught.value.reason == "too_long"
    assert caught.value.seconds == pytest.approx(2.0 - 0.85 * 1.5, abs=0.05)
    tasks.append(asyncio.create_task(hold(small, "a", turns[0], log, seconds_max=5.0)))
    turns[10].set()
    turns[11].set()
    await asyncio.gather(*tasks)


async def test_without_a_ready_replica_nobody_waits() -> None:
    with pytest.raises(NoReadyReplica):
        async with pool().slot(SlotRequest("a")):
            pass


def waking(**timeouts: float) -> tuple[Pool, ReplicaRecord]:
    made, [record] = pool(), records(1).values()
    made.configure(catalog.deployment(timeouts=catalog.DeploymentTimeouts(**timeouts)))
    made.set_replicas({"rep_1": msgspec.structs.replace(record, state="loading")})
    return made, record


async def test_requests_may_wait_for_a_replica_on_its_way() -> None:
    waiting, record = waking(wake_seconds=60.0)
    done, log = asyncio.Event(), []
    task = asyncio.create_task(hold(waiting, "a", done, log))
    await settle()
    assert (len(waiting.queue), waiting.capabilities) == (1, frozenset(record.capabilities))
    waiting.set_replicas({"rep_1": record})
    await settle()
    assert log == ["a"]
    done.set()
    await task


async def test_a_replica_that_never_comes_is_waited_for_in_vain() -> None:
    failing, record = waking(wake_seconds=60.0)
    task = asyncio.create_task(hold(failing, "a", asyncio.Event(), []))
    await settle()
    failing.set_replicas({"rep_1": msgspec.structs.replace(record, state="failed")})
    with pytest.raises(NoReadyReplica):
        await task
    slow, _ = waking(wake_seconds=0.01)
    with pytest.raises(NoReadyReplica):
        await hold(slow, "a", asyncio.Event(), [])
    unwilling, _ = waking()
    with pytest.raises(NoReadyReplica):
        await hold(unwilling, "a", asyncio.Event(), [])


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
    async with small.slot(SlotRequest("d")):
        pass


async def settle_one(act: Callable[[], object]) -> None:
    act()
    await asyncio.sleep(0)


async def breaks(pool: Pool, organization: str, *, at_fault: bool = False) -> None:
    async with pool.slot(SlotRequest(organization)) as slot:
        slot.replica_failed(is_at_fault=at_fault)


def timed(now: list[float], *slots: int) -> Pool:
    return pool(*slots, clock=lambda: now[0])  # type: ignore[arg-type]


async def test_a_replica_that_breaks_twice_is_out_until_one_request_tries_it() -> None:
    now = [100.0]
    both = timed(now, 4, 4)
    sick = both.replicas["rep_1"]
    sick.record_incident("a", now[0], is_at_fault=True)
    assert sick.is_usable(now[0])
    sick.record_incident("a", now[0], is_at_fault=True)
    async with both.slot(SlotRequest("a")) as first, both.slot(SlotRequest("a")) as second:
        assert {first.replica, second.replica} == {both.replicas["rep_2"]}
        now[0] = 110.0
        async with both.slot(SlotRequest("canary")) as tried:
            assert tried.replica is sick
            assert not sick.is_usable(now[0])
            tried.token_received()
            assert sick.is_usable(now[0])


async def test_one_break_of_many_streams_is_one_incident() -> None:
    one = pool(32)
    async with AsyncExitStack() as stack:
        slots = [
            await stack.enter_async_context(one.slot(SlotRequest(f"org {n}"))) for n in range(32)
        ]
        for slot in slots:
            slot.replica_failed()
    assert (one.replicas["rep_1"].incidents, one.replicas["rep_1"].on_probation) == (1, False)


async def test_where_all_are_ejected_ejection_is_ignored() -> None:
    only = pool(2)
    for _ in range(5):
        await breaks(only, "a", at_fault=True)
    async with only.slot(SlotRequest("b")) as slot, only.slot(SlotRequest("c")):
        assert slot.replica.on_probation


async def test_requests_of_one_customer_eject_nothing_and_are_refused_themselves() -> None:
    now = [100.0]
    shared = timed(now, 8)
    for _ in range(2):
        await breaks(shared, "poison")
    assert shared.replicas["rep_1"].is_usable(now[0])
    with pytest.raises(RequestQuarantined) as caught:
        async with shared.slot(SlotRequest("poison")):
            pass
    assert 0 < caught.value.seconds <= 600
    async with (
        shared.slot(SlotRequest("poison", feature="format")),
        shared.slot(SlotRequest("neighbour")),
    ):
        pass
    now[0] += caught.value.seconds + 1
    async with shared.slot(SlotRequest("poison")) as slot:
        slot.token_received()
    await breaks(shared, "poison")
    with pytest.raises(RequestQuarantined):
        async with shared.slot(SlotRequest("poison")):
            pass
    now[0] += FORGET_SECONDS + 1
    await breaks(shared, "poison")
    async with shared.slot(SlotRequest("poison")):
        pass


async def test_sound_requests_in_between_hide_nobody_who_breaks_engines() -> None:
    both = pool(8, 8)
    await breaks(both, "poison")
    async with both.slot(SlotRequest("poison")) as slot:
        slot.token_received()
    await breaks(both, "poison")
    with pytest.raises(RequestQuarantined):
        async with both.slot(SlotRequest("poison")):
            pass


async def test_what_had_a_token_is_no_suspect() -> None:
    only = pool(8)
    for _ in range(4):
        async with only.slot(SlotRequest("a")) as slot:
            slot.token_received()
            slot.replica_failed()
    async with only.slot(SlotRequest("a")):
        pass


async def test_whose_request_another_replica_answered_broke_nothing() -> None:
    both, poison = pool(8, 8), SlotRequest("poison")
    for _ in range(4):
        await breaks(both, "poison")
        both.health.confirm_replica_fault(both.replicas["rep_1"], poison.fingerprint)
    async with both.slot(poison):
        pass


@pytest.mark.parametrize("wanted", ["here", "elsewhere"])
async def test_requests_whose_clients_left_end_once_their_slots_are_wanted(wanted: str) -> None:
    share, ended, done, log = [2], list[str](), asyncio.Event(), list[str]()
    small = pool(2, share_of=lambda _: share[0])
    async with small.slot(SlotRequest("a")) as slot, small.slot(SlotRequest("a")) as gone:
        small.queue.set_unwanted(slot.service, lambda: ended.append("slot"))
        small.set_shares({})
        assert ended == []
        if wanted == "here":
            waiting = asyncio.create_task(hold(small, "b", done, log))
            await settle()
            assert ended == ["slot"]
            small.queue.set_unwanted(gone.service, lambda: ended.append("at once"))
            assert ended == ["slot", "at once"]
        else:
            share[0] = 1
            small.set_shares({})
            assert ended == ["slot"]
    if wanted == "here":
        done.set()
        await waiting
    small.queue.set_unwanted(slot.service, lambda: ended.append("too late"))
    assert small.queue._unwanted == {}


async def test_who_met_a_dying_replica_is_not_suspected_once_it_is_gone() -> None:
    dying = pool(8)
    for _ in range(2):
        await breaks(dying, "unlucky")
    with pytest.raises(RequestQuarantined):
        async with dying.slot(SlotRequest("unlucky")):
            pass
    dying.set_replicas({"rep_2": replica("http://r2", 2)})
    async with dying.slot(SlotRequest("unlucky")):
        pass


async def test_what_breaks_one_replica_after_another_is_refused() -> None:
    dying = pool(8)
    await breaks(dying, "poison")
    dying.set_replicas({"rep_2": replica("http://r2", 2)})
    await breaks(dying, "poison")
    dying.set_replicas({"rep_3": replica("http://r3", 3)})
    with pytest.raises(RequestQuarantined):
        async with dying.slot(SlotRequest("poison")):
            pass


async def test_what_another_replica_serves_was_the_first_ones_fault() -> None:
    both = pool(1, 1)
    sick = both.replicas["rep_1"]
    for _ in range(2):
        both.health.record_incident(sick, SlotRequest("a"), is_at_fault=False)
    assert not sick.on_probation
    gone = Replica(replica("http://r3", 3), 1)
    for broken in (gone, sick):
        both.health.confirm_replica_fault(broken, RequestFingerprint("a", "plain"))
    assert sick.on_probation


async def test_who_waits_is_woken_when_an_ejection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now, timers = [100.0], list[tuple[float, Callable[[], None]]]()
    both, done, log = timed(now, 1, 1), asyncio.Event(), []
    sick = both.replicas["rep_1"]
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "call_later", lambda *timer: timers.append(timer))
        for _ in range(2):
            both.health.record_incident(sick, SlotRequest("a"), is_at_fault=True)
    tasks = [asyncio.create_task(hold(both, name, done, log)) for name in "ab"]
    await settle()
    assert len(log) == 1
    [(seconds, wake)] = timers
    now[0] += seconds
    wake()
    await settle()
    assert len(log) == 2
    done.set()
    await asyncio.gather(*tasks)


async def test_a_replica_that_leaves_the_feed_gets_no_more_work_but_keeps_its_own() -> None:
    shrinking = pool(1, 1)
    async with shrinking.slot(SlotRequest("a")), shrinking.slot(SlotRequest("a")):
        shrinking.set_replicas(records(1))
        assert list(shrinking.replicas) == ["rep_1"]
    async with shrinking.slot(SlotRequest("a")) as left:
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


async def test_more_urgent_tiers_go_first() -> None:
    small, done, log = pool(1), asyncio.Event(), []
    tasks = [asyncio.create_task(hold(small, "first", done, log, tier="batch"))]
    await settle()
    for tier in ("batch", "flex", "default", "priority"):
        tasks.append(asyncio.create_task(hold(small, tier, done, log, tier=tier)))
        await settle()
    done.set()
    await asyncio.gather(*tasks)
    assert log == ["first", "priority", "default", "flex", "batch"]


async def test_less_urgent_tiers_leave_slots_free_for_those_in_use() -> None:
    now, done, log = [100.0], asyncio.Event(), []
    shared = pool(10, 10, clock=lambda: now[0])
    async with shared.slot(SlotRequest("a")):
        pass
    tasks = [asyncio.create_task(hold(shared, "b", done, log, tier="batch")) for _ in range(30)]
    await settle()
    assert len(log) == 18
    async with shared.slot(SlotRequest("a")), shared.slot(SlotRequest("a")):
        pass
    now[0] += 601.0
    shared.set_replicas(records(10, 10))
    await settle()
    assert len(log) == 20
    done.set()
    await asyncio.gather(*tasks)


async def test_a_pool_of_one_slot_serves_every_tier() -> None:
    single = pool(1)
    async with single.slot(SlotRequest("a", tier="priority")):
        pass
    async with single.slot(SlotRequest("a", tier="batch")):
        pass
    async with single.slot(SlotRequest("a", tier="batch", sequences=8)):
        pass


BLOCKS = (1, 2, 3, 4)


async def where(of: Pool, request: SlotRequest) -> str:
    async with of.slot(request) as slot:
        return slot.replica.record.replica_id


async def test_a_conversation_stays_where_it_was() -> None:
    four, other = pool(4, 4, 4, 4), SlotRequest("a", prefix_blocks=BLOCKS[:2])
    first = await where(four, other)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(four.slot(SlotRequest("b")))
        assert await where(four, SlotRequest("a", prefix_blocks=BLOCKS)) == first
    assert four.choices == {"load": 4, "affinity": 1}


async def test_it_goes_elsewhere_rather_than_wait_and_stays_there() -> None:
    both = pool(1, 1)
    async with (
        both.slot(SlotRequest("a", prefix_blocks=BLOCKS[:2])) as first,
        both.slot(SlotRequest("a", prefix_blocks=BLOCKS)) as second,
    ):
        assert second.replica is not first.replica
    assert (
        await where(both, SlotRequest("a", prefix_blocks=BLOCKS))
        == second.replica.record.replica_id
    )
    assert both.choices == {"load": 1, "spill": 1, "affinity": 1}


async def test_a_replica_that_left_or_started_anew_is_not_remembered() -> None:
    both, known = pool(4, 4), records(4, 4)
    place = await where(both, SlotRequest("a", prefix_blocks=BLOCKS))
    again = msgspec.structs.replace(known[place], started_at=catalog.START + timedelta(hours=1))
    both.set_replicas(known | {place: again})
    assert len(both.replicas[place].prefix_history) == 0
    assert await where(both, SlotRequest("a", prefix_blocks=BLOCKS)) == place
    both.set_replicas({id_: record for id_, record in known.items() if id_ != place})
    assert await where(both, SlotRequest("a", prefix_blocks=BLOCKS)) != place
    both.set_replicas(known)
    assert len(both.replicas[place].prefix_history) == 0


async def test_what_a_waiter_asks_is_remembered_too() -> None:
    both, done, log = pool(1, 1), asyncio.Event(), []
    running = [asyncio.create_task(hold(both, "a", done, log)) for _ in range(2)]
    await settle()
    waiting = asyncio.create_task(hold(both, "b", done, log, prefix_blocks=BLOCKS))
    await settle()
    done.set()
    await asyncio.gather(*running, waiting)
    assert sum(len(one.prefix_history) for one in both.replicas.values()) == len(BLOCKS)


async def test_there_is_room_unless_somebody_waits_or_it_is_kept_for_others() -> None:
    made = pool(2, 2)
    assert made.has_room("batch")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(made.slot(SlotRequest("a", tier="default", sequences=2)))
        await stack.enter_async_context(made.slot(SlotRequest("b", tier="batch")))
        assert made.has_room("default")
        assert not made.has_room("batch"), "the last slot is kept for `default`"
        await stack.enter_async_context(made.slot(SlotRequest("a")))
        assert not made.has_room("default")
