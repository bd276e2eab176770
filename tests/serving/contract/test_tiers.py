"""Dividing slots among tiers: each has its guarantee, and nothing is left that anybody needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.environment import ConfigError
from serving.contract.tiers import (
    DEFAULT_GUARANTEES,
    Guarantees,
    divide,
    fill,
    read_guarantees,
    reserved_slots,
)
from serving.contract.units import TIERS, Tier


def guaranteed(value: str) -> Guarantees:
    return read_guarantees({"TIERS": value}, "TIERS")


GUARANTEES = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(
    lambda cuts: guaranteed(
        f"priority={min(cuts)},default={max(cuts) - min(cuts)},flex={100 - max(cuts)}"
    )
)
NEEDS = st.dictionaries(st.sampled_from(TIERS), st.integers(0, 500))
SLOTS = st.integers(0, 200)
RESERVED = st.integers(0, 40)


@given(
    st.floats(0, 100),
    st.dictionaries(
        st.text("abcdef", min_size=1), st.tuples(st.integers(0, 9), st.integers(1, 99))
    ),
)
def test_nobody_gets_more_than_it_needs_nor_less_than_others_by_weight(
    slots: float, needs: dict[str, tuple[int, int]]
) -> None:
    due = fill(slots, needs)
    whole = sum(need for _, need in needs.values())
    assert abs(sum(due.values()) - min(slots, whole)) < 1e-6
    levels = [due[name] / weight for name, (weight, _) in needs.items() if weight]
    level = max(levels, default=0.0)
    for name, (weight, need) in needs.items():
        assert 0 <= due[name] <= need
        assert due[name] >= min(need, level * weight) - 1e-6


@given(SLOTS, NEEDS, GUARANTEES, RESERVED)
def test_a_tier_is_due_its_guarantee_and_all_slots_are_due_to_somebody(
    slots: int, needs: dict[Tier, float], guarantees: Guarantees, reserved: int
) -> None:
    due = divide(slots, needs, guarantees, reserved)
    assert list(due) == [tier for tier in due if needs[tier] > 0]
    urgent = sum(need for tier, need in needs.items() if tier != "batch")
    batch = min(needs.get("batch", 0), max(0, slots - urgent - reserved))
    assert sum(due.values()) == pytest.approx(min(slots, urgent) + batch, abs=1e-6)
    for tier, own in due.items():
        assert own >= min(needs[tier], guarantees[tier] * slots) - 1e-6


@given(SLOTS, SLOTS, NEEDS, GUARANTEES)
def test_more_slots_take_none_from_anybody(
    slots: int, more: int, needs: dict[Tier, float], guarantees: Guarantees
) -> None:
    few, many = divide(slots, needs, guarantees), divide(slots + more, needs, guarantees)
    assert all(many[tier] >= own - 1e-6 for tier, own in few.items())


@given(SLOTS, NEEDS, GUARANTEES, st.sampled_from(TIERS), st.integers(0, 100))
def test_who_needs_more_is_due_no_less_and_the_others_no_more(
    slots: int, needs: dict[Tier, float], guarantees: Guarantees, who: Tier, more: int
) -> None:
    before = divide(slots, needs, guarantees)
    after = divide(slots, {**needs, who: needs.get(who, 0) + more}, guarantees)
    for tier in TIERS:
        change = after.get(tier, 0.0) - before.get(tier, 0.0)
        assert change >= -1e-6 if tier == who else change <= 1e-6


@pytest.mark.parametrize(
    ("needs", "due"),
    [
        ({"priority": 90, "default": 90}, {"priority": 80, "default": 40}),
        ({"default": 200, "flex": 200, "batch": 200}, {"default": 90, "flex": 30}),
        ({"priority": 30, "flex": 200}, {"priority": 30, "flex": 90}),
        ({"flex": 20, "batch": 200}, {"flex": 20, "batch": 76}),
    ],
)
def test_what_a_tier_does_not_need_is_lent_by_the_guarantees_of_the_others(
    needs: dict[Tier, float], due: dict[Tier, float]
) -> None:
    found = divide(120, needs, reserved=24)
    assert {tier: own for tier, own in found.items() if own} == pytest.approx(due)


@given(st.integers(1, 512), st.integers(1, 16), st.integers(1, 2), st.floats(0.0, 1.0))
def test_a_request_of_batch_can_always_run_by_itself(
    slots: int, gateways: int, tiers: int, share: float
) -> None:
    assert 0 <= reserved_slots(tiers, share, slots, slots * gateways) <= slots - 1


@given(st.lists(st.integers(0, 64), min_size=1, max_size=8), st.integers(0, 2))
def test_what_is_kept_free_counts_over_all_gateways(slots: list[int], tiers: int) -> None:
    total = sum(slots)
    kept = sum(reserved_slots(tiers, 0.1, own, total) for own in slots)
    assert kept <= tiers * max(1, round(0.1 * total)) + len(slots)
    if tiers and min(slots) > 20:
        assert kept >= tiers * round(0.1 * total)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [((1, 0.1, 100, 100), 10), ((2, 0.1, 25, 100), 5), ((2, 0.1, 1, 4), 0), ((2, 0.0, 9, 9), 0)],
)
def test_a_gateway_keeps_its_part_of_what_is_kept_free(
    arguments: tuple[int, float, int, int], kept: int
) -> None:
    assert reserved_slots(*arguments) == kept


def test_guarantees_are_percentages_that_add_up_to_a_hundred() -> None:
    assert guaranteed("") == DEFAULT_GUARANTEES
    assert dict(DEFAULT_GUARANTEES) == {"priority": 0.6, "default": 0.3, "flex": 0.1, "batch": 0.0}
    found = guaranteed("priority=20,default=80,flex=0")
    assert dict(found) == {"priority": 0.2, "default": 0.8, "flex": 0.0, "batch": 0.0}


@pytest.mark.parametrize(
    "value",
    [
        "priority=60,default=30,flex=11",
        "priority=-10,default=100,flex=10",
        "priority=60,default=40",
        "priority=60,default=30,flex=10,batch=0",
        "60/30/10",
        "priority=59.5,default=30,flex=10.5",
    ],
)
def test_other_guarantees_are_refused_with_what_is_wanted(value: str) -> None:
    with pytest.raises(ConfigError, match=r"TIERS is .*priority=60,default=30"):
        guaranteed(value)
