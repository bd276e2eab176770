"""Second tries: who may have one, when, and how many there are."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.pool.hedging import SAMPLES_MIN, SECONDS_MIN, SHARE, HedgePolicy
from serving.pool.pool import Pool
from serving.pool.retry_budget import SAVED_MAX, RetryBudget
from serving.pool.slot_request import NoHedgeSlot, RequestFingerprint, SlotRequest
from tests.fixtures.catalog import replica

URGENT = SlotRequest("a", tier="priority", input_tokens=100)


def pool(*slots: int, clock: Callable[[], float] = time.monotonic) -> Pool:
    made = Pool("dep", clock=clock)
    records = [replica(f"http://r{n}", n, slots=count) for n, count in enumerate(slots, start=1)]
    made.set_replicas({record.replica_id: record for record in records})
    for _ in range(20 * 20):
        made.health.hedging.budget.record_request()
    return made


def remember(hedging: HedgePolicy, seconds: float, *replica_ids: str, tokens: int = 100) -> None:
    for replica_id in replica_ids:
        for _ in range(SAMPLES_MIN):
            hedging.times.record(replica_id, tokens, seconds, hedging._clock())


def test_late_is_what_19_of_20_of_the_others_are_not() -> None:
    now = [100.0]
    hedging = HedgePolicy(lambda: now[0])
    assert hedging.seconds_for("slow", 100) is None
    for number in range(1, 21):
        hedging.times.record("quick", 100, number / 10, now[0])
        hedging.times.record("slow", 100, 60.0, now[0])
    now[0] += 2.0
    assert hedging.seconds_for("slow", 100) == pytest.approx(1.9)
    assert hedging.seconds_for("quick", 100) == pytest.approx(60.0)


def test_a_long_prompt_is_compared_with_long_ones() -> None:
    hedging = HedgePolicy(lambda: 100.0)
    remember(hedging, 0.2, "quick", tokens=100)
    remember(hedging, 4.0, "quick", tokens=6_000)
    assert hedging.seconds_for("slow", 120) == pytest.approx(0.2)
    assert hedging.seconds_for("slow", 5_000) == pytest.approx(4.0)
    assert hedging.seconds_for("slow", 50_000) is None


def test_what_was_long_ago_is_forgotten_and_nobody_is_late_within_a_moment() -> None:
    now = [100.0]
    hedging = HedgePolicy(lambda: now[0])
    remember(hedging, 0.001, "quick")
    assert hedging.seconds_for("slow", 100) == SECONDS_MIN
    now[0] += 61.0
    assert hedging.seconds_for("slow", 100) is None


async def test_only_single_urgent_requests_that_broke_nothing_have_a_second_try() -> None:
    both = pool(8, 8)
    remember(both.health.hedging, 0.3, "rep_1", "rep_2")
    asked = {
        "urgent": URGENT,
        "default": SlotRequest("a", input_tokens=100),
        "wide": SlotRequest("a", tier="priority", input_tokens=100, sequences=2),
        "suspected": SlotRequest("poison", tier="priority", input_tokens=100),
    }
    both.health.suspect(both.replicas["rep_1"], RequestFingerprint("poison", "plain"))
    late = {}
    for name, request in asked.items():
        async with both.slot(request) as slot:
            late[name] = slot.late_seconds
    assert late == {"urgent": 0.3, "default": None, "wide": None, "suspected": None}


async def test_a_second_try_is_at_another_replica_and_gives_its_slot_back() -> None:
    both = pool(2, 2)
    async with both.slot(URGENT) as first:
        async with first.hedge_slot() as second:
            assert second.replica is not first.replica
            assert both.load_shedder.tokens == 200
            second.hedge_lost()
        assert second.replica.in_flight == 0
    assert both.load_shedder.tokens == 0


async def test_there_is_none_where_no_sound_replica_has_a_slot_to_spare() -> None:
    single, full, sick = pool(8), pool(8, 1), pool(8, 8)
    async with single.slot(URGENT) as first:
        with pytest.raises(NoHedgeSlot):
            await first.hedge_slot().__aenter__()
    async with full.slot(URGENT) as one, full.slot(URGENT) as other:
        first = one if other.replica.share == 1 else other
        with pytest.raises(NoHedgeSlot):
            await first.hedge_slot().__aenter__()
    async with sick.slot(URGENT) as first:
        other = next(one for one in sick.replicas.values() if one is not first.replica)
        for _ in range(2):
            other.record_incident("a", sick.now, is_at_fault=True)
        with pytest.raises(NoHedgeSlot):
            await first.hedge_slot().__aenter__()


async def test_who_waits_goes_before_a_second_try() -> None:
    both = pool(1, 2)
    async with AsyncExitStack() as stack:
        slots = [await stack.enter_async_context(both.slot(URGENT)) for _ in range(3)]
        waiting = asyncio.create_task(both.slot(URGENT).__aenter__())
        await asyncio.sleep(0)
        assert len(both.queue) == 1
        with pytest.raises(NoHedgeSlot):
            await slots[0].hedge_slot().__aenter__()
        waiting.cancel()


@given(st.lists(st.booleans(), max_size=2_000))
def test_second_tries_are_never_more_than_their_share(asks: list[bool]) -> None:
    budget, taken, since = RetryBudget(SHARE, saved=0.0), 0, 0
    for number, is_late in enumerate(asks, start=1):
        budget.record_request()
        taken += is_late and budget.take()
        assert taken <= SHARE * number + 1e-9
        since += 1
    burst = sum(budget.take() for _ in range(1_000))
    assert burst <= min(SAVED_MAX, SHARE * since + 1e-9)


async def test_the_pool_counts_its_urgent_requests_for_them() -> None:
    both = Pool("dep")
    records = [replica(f"http://r{n}", n, slots=8) for n in (1, 2)]
    both.set_replicas({record.replica_id: record for record in records})
    taken = 0
    for _ in range(200):
        async with both.slot(URGENT) as slot:
            try:
                async with slot.hedge_slot():
                    taken += 1
            except NoHedgeSlot:
                pass
        async with both.slot(SlotRequest("a")):
            pass
    assert taken == pytest.approx(200 * SHARE, abs=1)


async def test_a_first_token_that_never_came_says_that_it_was_late() -> None:
    now = [100.0]
    both = pool(8, 8, clock=lambda: now[0])
    remember(both.health.hedging, 0.0, "rep_1", "rep_2")
    size = URGENT.input_tokens.bit_length()
    async with both.slot(URGENT) as late:
        now[0] += 5.0
        late.hedge_lost()
    assert max(both.health.hedging.times.of(late.replica.record.replica_id, size, now[0])) == 5.0
    async with both.slot(URGENT) as late, late.hedge_slot() as second:
        second.hedge_lost()
    seen = both.health.hedging.times.of(second.replica.record.replica_id, size, now[0])
    assert len(seen) == SAMPLES_MIN, "it was cancelled before anybody could say"
