"""What each tier is served while others ask for more than there is."""

import pytest

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import TIERS, Tier
from serving.pool.queue import TierTurns
from serving.pool.slot_request import SlotRequest
from tests.serving.pool.simulation import SECONDS, served

TOKENS = 25


def request(tier: Tier) -> SlotRequest:
    return SlotRequest(tier, tier=tier, input_tokens=20, output_tokens_max=TOKENS)


@pytest.mark.parametrize("slots", [1, 4, 16])
async def test_a_flood_of_priority_leaves_default_its_share(slots: int) -> None:
    flood = [(request("priority"), TOKENS)] * 8 * slots
    seen = await served(slots, *flood, *[(request("default"), TOKENS)] * 2 * slots)
    part = seen.slot_seconds["default"] / seen.slot_seconds.total()
    assert DEFAULT_GUARANTEES["default"] - 0.07 <= part <= DEFAULT_GUARANTEES["default"] + 0.1
    assert seen.refused["default"] <= seen.slot_seconds["default"]


@pytest.mark.parametrize("slots", [4, 20])
async def test_every_tier_with_work_keeps_its_share(slots: int) -> None:
    seen = await served(
        slots, *[(request(tier), TOKENS) for tier in TIERS for _ in range(3 * slots)]
    )
    for tier in TIERS:
        part = seen.slot_seconds[tier] / seen.slot_seconds.total()
        assert 0.6 * DEFAULT_GUARANTEES[tier] <= part <= 1.5 * DEFAULT_GUARANTEES[tier] + 0.05, tier


def test_slots_that_nobody_else_wanted_are_no_debt() -> None:
    turns = TierTurns()
    turns.record("default", 16, now=0.0)
    turns.record("default", 3, now=30.0)
    turns.record("priority", 13, now=30.0)
    assert turns.next_of(["priority", "default"], 16, now=30.0) == "default"


@pytest.mark.parametrize("slots", [1, 16])
async def test_what_a_tier_does_not_need_is_lent_by_guarantees(slots: int) -> None:
    floods: tuple[Tier, ...] = ("default", "flex", "batch")
    seen = await served(
        slots, *[(request(tier), TOKENS) for tier in floods for _ in range(3 * slots)]
    )
    part = {tier: seen.slot_seconds[tier] / seen.slot_seconds.total() for tier in floods}
    assert part == pytest.approx({"default": 0.75, "flex": 0.25, "batch": 0.0}, abs=0.06)


def test_a_tier_without_a_share_is_next_where_no_other_waits() -> None:
    turns = TierTurns()
    turns.shares = {"priority": 1.0, "default": 0.0, "flex": 0.0, "batch": 0.0}
    turns.record("priority", 9, now=0.0)
    assert turns.next_of(["priority", "default", "batch"], 8, now=0.0) == "priority"
    assert turns.next_of(["default", "batch"], 8, now=0.0) == "default"
    assert turns.next_of(["batch"], 8, now=0.0) == "batch"


async def test_what_urgent_tiers_leave_is_there_for_the_others_and_they_are_served_first() -> None:
    few = [(request("priority"), TOKENS)] * 4
    seen = await served(16, *few, *[(request("batch"), TOKENS)] * 48)
    assert seen.slot_seconds["priority"] >= 0.9 * 4 * SECONDS
    assert seen.slot_seconds.total() >= 0.8 * 16 * SECONDS
