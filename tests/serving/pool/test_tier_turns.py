"""What each tier is served while others ask for more than there is."""

import pytest

from serving.contract.tiers import GUARANTEED
from serving.contract.units import TIERS, Tier
from serving.pool.ticket import Ticket
from serving.pool.tier_turns import TierTurns
from tests.serving.pool.simulation import SECONDS, served

TOKENS = 25


def ticket(tier: Tier) -> Ticket:
    return Ticket(tier, tier=tier, input_tokens=20, output_tokens_max=TOKENS)


@pytest.mark.parametrize("slots", [1, 4, 16])
async def test_a_flood_of_priority_leaves_default_its_share(slots: int) -> None:
    flood = [(ticket("priority"), TOKENS)] * 8 * slots
    seen = await served(slots, *flood, *[(ticket("default"), TOKENS)] * 2 * slots)
    part = seen.slot_seconds["default"] / seen.slot_seconds.total()
    assert GUARANTEED["default"] - 0.07 <= part <= GUARANTEED["default"] + 0.1
    assert seen.refused["default"] <= seen.slot_seconds["default"]


@pytest.mark.parametrize("slots", [4, 20])
async def test_every_tier_with_work_keeps_its_share(slots: int) -> None:
    seen = await served(
        slots, *[(ticket(tier), TOKENS) for tier in TIERS for _ in range(3 * slots)]
    )
    for tier in TIERS:
        part = seen.slot_seconds[tier] / seen.slot_seconds.total()
        assert 0.6 * GUARANTEED[tier] <= part <= 1.5 * GUARANTEED[tier] + 0.05, tier


def test_slots_that_nobody_else_wanted_are_no_debt() -> None:
    turns = TierTurns()
    turns.note("default", 16, now=0.0)
    turns.note("default", 3, now=30.0)
    turns.note("priority", 13, now=30.0)
    needs: dict[Tier, float] = {"priority": 48, "default": 24}
    assert turns.next_of(["priority", "default"], 16, needs, now=30.0) == "default"


async def test_what_urgent_tiers_leave_is_there_for_the_others_and_they_are_served_first() -> None:
    few = [(ticket("priority"), TOKENS)] * 4
    seen = await served(16, *few, *[(ticket("batch"), TOKENS)] * 48)
    assert seen.slot_seconds["priority"] >= 0.9 * 4 * SECONDS
    assert seen.slot_seconds.total() >= 0.8 * 16 * SECONDS
