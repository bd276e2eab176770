"""What each tier is served while others ask for more than there is."""

from collections import Counter
from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import TIERS, Tier
from serving.pool.queue import TierTurns
from serving.pool.slot_request import SlotRequest
from tests.serving.pool.simulation import SECONDS, STEP_SECONDS, served

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
    assert turns.next_of(["priority", "default"], now=30.0) == "default"


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
    assert turns.next_of(["priority", "default", "batch"], now=0.0) == "priority"
    assert turns.next_of(["default", "batch"], now=0.0) == "default"
    assert turns.next_of(["batch"], now=0.0) == "batch"


async def test_what_urgent_tiers_leave_is_there_for_the_others_and_they_are_served_first() -> None:
    few = [(request("priority"), TOKENS)] * 4
    seen = await served(16, *few, *[(request("batch"), TOKENS)] * 48)
    assert seen.slot_seconds["priority"] >= 0.9 * 4 * SECONDS
    assert seen.slot_seconds.total() >= 0.8 * 16 * SECONDS


@pytest.mark.parametrize("tokens", [5, 50])
@pytest.mark.parametrize("tiers", [("default", "flex"), ("priority", "default", "flex")])
async def test_large_requests_of_which_one_runs_at_a_time_keep_the_shares_of_their_tiers(
    tiers: tuple[Tier, ...], tokens: int
) -> None:
    large = [
        (SlotRequest(tier, tier=tier, input_tokens=60_000, output_tokens_max=tokens), tokens)
        for tier in tiers
        for _ in range(4)
    ]
    seen = await served(8, *large, kv_tokens=100_000)
    total, guaranteed = seen.slot_seconds.total(), sum(DEFAULT_GUARANTEES[tier] for tier in tiers)
    assert 0.8 * SECONDS <= total <= SECONDS, "one at a time"
    for tier in tiers:
        due = total * DEFAULT_GUARANTEES[tier] / guaranteed
        one = tokens * STEP_SECONDS
        assert abs(seen.slot_seconds[tier] - due) <= 2 * one, tier


WITH_A_SHARE: tuple[Tier, ...] = ("priority", "default", "flex")
SHARES = st.tuples(*[st.integers(1, 20)] * 3).map(
    lambda parts: dict(zip(TIERS, [*(part / sum(parts) for part in parts), 0.0], strict=True))
)
RUN_SECONDS = st.one_of(st.integers(1, 600), st.floats(0.01, 30.0))


def turns_of(shares: dict[Tier, float]) -> TierTurns:
    turns = TierTurns()
    turns.shares = shares
    return turns


def run_one(
    turns: TierTurns, waiting: list[Tier], now: float, seconds: Mapping[Tier, float]
) -> Tier:
    """Give the only slot to whose turn it is, and take it back after so long."""
    tier = turns.next_of(waiting, now)
    turns.record(tier, 1, now)
    turns.record(tier, 0, now + seconds[tier])
    return tier


@given(SHARES, st.lists(st.tuples(*[RUN_SECONDS] * 3), min_size=1, max_size=60))
def test_tiers_that_always_wait_receive_by_their_shares_to_within_a_request_of_each(
    shares: dict[Tier, float], runs: list[tuple[float, ...]]
) -> None:
    turns, now = turns_of(shares), 0.0
    received, longest = Counter[Tier](), Counter[Tier]()
    for run in runs:
        seconds = dict(zip(WITH_A_SHARE, run, strict=True))
        tier = run_one(turns, [*WITH_A_SHARE, "batch"], now, seconds)
        now += seconds[tier]
        received[tier] += seconds[tier] / shares[tier]
        longest[tier] = max(longest[tier], seconds[tier] / shares[tier])
        for one, other in permutations(WITH_A_SHARE, 2):
            assert received[one] - received[other] <= longest[one] * (1 + 1e-9)


@given(
    SHARES,
    st.sampled_from(WITH_A_SHARE),
    st.lists(st.tuples(st.sets(st.sampled_from(TIERS)), RUN_SECONDS), max_size=60),
)
def test_one_that_waits_is_passed_by_what_others_are_due_meanwhile_and_one_request_of_each(
    shares: dict[Tier, float], steady: Tier, steps: list[tuple[set[Tier], float]]
) -> None:
    turns, now = turns_of(shares), 0.0
    passed, last = Counter[Tier](), 0.0
    longest = max((seconds for _, seconds in steps), default=0.0)
    for others, seconds in steps:
        waiting = [tier for tier in TIERS if tier == steady or tier in others]
        tier = run_one(turns, waiting, now, dict.fromkeys(TIERS, seconds))
        now += seconds
        assert tier != "batch"
        if tier == steady:
            passed, last = Counter(), seconds / shares[steady]
        else:
            passed[tier] += seconds
            assert passed[tier] <= (last * shares[tier] + longest) * (1 + 1e-9)


@given(
    st.permutations(WITH_A_SHARE),
    st.integers(1, 16),
    st.floats(1.0, 1e6),
    st.lists(st.floats(0.1, 600.0), min_size=16, max_size=16),
)
def test_slots_had_while_nobody_waited_or_beside_others_are_no_debt_where_one_runs_at_a_time(
    tiers: list[Tier], running: int, alone: float, ends: list[float]
) -> None:
    turns, first = TierTurns(), tiers[0]
    turns.record(first, running, 0.0)
    turns.begin_to_wait(alone)
    now = alone
    for left, seconds in zip(reversed(range(running)), ends, strict=False):
        now += seconds
        turns.record(first, left, now)
    # Only the last of these requests ran alone, where the others waited for its slot.
    waiting, others = sorted(tiers, key=TIERS.index), Counter[Tier]()
    while (tier := run_one(turns, waiting, now, dict.fromkeys(TIERS, 1.0))) != first:
        now += 1.0
        others[tier] += 1
    for tier, seconds in others.items():
        due = ends[running - 1] * DEFAULT_GUARANTEES[tier] / DEFAULT_GUARANTEES[first]
        assert seconds <= due + 1.0 + 1e-6
