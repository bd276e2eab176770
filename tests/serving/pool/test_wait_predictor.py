"""How long a wait is thought to be: what other tiers are given meanwhile is no more than they need,
or than their guarantees allow."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import TIERS, Tier
from serving.pool.overload import TierLoad, WaitPredictor
from serving.pool.pool import Pool
from serving.pool.slot_request import SlotRequest
from tests.fixtures.catalog import replica

SLOTS_A_SECOND = 40
LOADS = st.tuples(*[st.builds(TierLoad, st.integers(0, 30), st.integers(0, 200)) for _ in TIERS])
COMING = st.tuples(*[st.integers(0, 2 * SLOTS_A_SECOND) for _ in TIERS])


def pace_of(coming: dict[Tier, int]) -> WaitPredictor:
    """Return the pace of a pool that gives so many slots a second, while so many come in."""
    pace = WaitPredictor()
    for second in range(1, 40):
        for tier, slots in coming.items():
            pace.record_arrival(tier, slots)
        pace.advance(float(second), waited=True)
        pace.record_grant(SLOTS_A_SECOND)
    return pace


@given(COMING, LOADS, st.sampled_from(TIERS), st.integers(1, 300))
def test_a_tier_waits_for_what_others_are_given_meanwhile(
    coming: tuple[int, ...], loads: tuple[TierLoad, ...], tier: Tier, slots: int
) -> None:
    comes, load = dict(zip(TIERS, coming, strict=True)), dict(zip(TIERS, loads, strict=True))
    pace = pace_of(comes)
    seconds = pace.seconds_for(slots, tier, load, DEFAULT_GUARANTEES)
    assert seconds >= 0.9 * slots / SLOTS_A_SECOND
    if share := DEFAULT_GUARANTEES[tier]:
        running = load[tier].running
        assert seconds <= 1.1 * (slots + running) / (share * SLOTS_A_SECOND), "its guarantee"
    if tier != "batch" and not any(comes[one] or load[one].waiting for one in TIERS if one != tier):
        assert seconds == pytest.approx(slots / SLOTS_A_SECOND, rel=0.1)


def test_below_its_guarantee_a_tier_is_given_every_slot() -> None:
    pace = pace_of({"priority": 2 * SLOTS_A_SECOND})
    load = {tier: TierLoad(0, 0) for tier in TIERS} | {"priority": TierLoad(100, 500)}
    soon = pace.seconds_for(20, "default", load, DEFAULT_GUARANTEES)
    assert soon == pytest.approx(20 / SLOTS_A_SECOND, rel=0.1)
    later = pace.seconds_for(200, "default", load, DEFAULT_GUARANTEES)
    assert later == pytest.approx((200 + 300) / SLOTS_A_SECOND, rel=0.1)


def test_batch_never_has_its_turn_where_others_fill_all_slots() -> None:
    pace = pace_of({"default": 2 * SLOTS_A_SECOND})
    load = {tier: TierLoad(0, 0) for tier in TIERS}
    assert pace.seconds_for(1, "batch", load, DEFAULT_GUARANTEES) > 1e6


async def test_batch_that_waits_for_what_is_kept_free_does_not_make_the_pool_look_slow() -> None:
    now = [0.0]
    pool = Pool("dep", clock=lambda: now[0])
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=20)})
    ends, urgent = asyncio.Event(), SlotRequest("a", tier="priority")

    async def hold(request: SlotRequest, end: asyncio.Event) -> None:
        async with pool.slot(request):
            await end.wait()

    async with pool.slot(urgent):
        pass
    batch = [asyncio.create_task(hold(SlotRequest("b", tier="batch"), ends)) for _ in range(40)]
    for _ in range(100):  # one urgent request every second, beside twenty of batch that wait
        await asyncio.sleep(0)
        async with pool.slot(urgent):
            now[0] += 1.0
    assert len(pool.queue) == 22
    queue = pool.queue
    assert queue._seconds_for(10, "priority") == 0.0, "nobody knows how fast it would be"
    ends.set()
    await asyncio.gather(*batch)
