"""Dividing slots: all of them, to those who need them, by weights, and with few moves."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.slot_shares import DeploymentDemand, OrganizationDemand
from serving.contract.units import TIERS, Tier
from serving.fleet import slot_division
from serving.fleet.demand_totals import DemandTotals
from serving.fleet.slot_division import USUAL, TierPolicy, assign, tier_parts

ORGANIZATION = st.builds(
    OrganizationDemand, st.integers(1, 4), st.integers(0, 20), st.integers(0, 50), st.booleans()
)
DEMAND = st.builds(
    lambda tiers: DeploymentDemand({}, tiers),
    st.dictionaries(
        st.sampled_from(TIERS), st.dictionaries(st.sampled_from("abcde"), ORGANIZATION, max_size=4)
    ),
)
DEMANDS = st.dictionaries(st.sampled_from(("g1", "g2", "g3", "g4")), DEMAND, min_size=1)
BEFORE = st.dictionaries(st.sampled_from(("g1", "g2", "g3", "gone")), st.integers(0, 40))


Demands = Mapping[str, DeploymentDemand]


def added_up(demands: Demands) -> DemandTotals:
    totals = DemandTotals()
    for gateway, each in demands.items():
        totals.apply(gateway, each, is_whole=True)
    return totals


def quotas(
    slots: int,
    demands: Demands,
    before: Mapping[str, int],
    *,
    turn: int = 0,
    policy: TierPolicy = USUAL,
) -> dict[str, int]:
    return slot_division.quotas(slots, added_up(demands), before, turn=turn, policy=policy)


def due_by_tier(slots: int, demands: Demands) -> dict[Tier, dict[str, float]]:
    return slot_division.due_by_tier(slots, added_up(demands))


def never_paid_parts(slots: int, demands: Demands) -> dict[str, float]:
    return slot_division.never_paid_parts(slots, added_up(demands))


def organization_parts(demands: Demands, gateway: str) -> dict[str, float]:
    """The parts at a gateway of those that come through others too."""
    totals = added_up(demands)
    parts = totals.parts(gateway, totals.organizations(gateway))
    return {organization: part for organization, part in parts.items() if part < 1.0}


def demand(tier: str = "default", **organizations: tuple[int, int, int]) -> DeploymentDemand:
    """Return a demand of organizations, each with its weight, what runs and what waits."""
    told = {name: OrganizationDemand(*figures) for name, figures in organizations.items()}
    return DeploymentDemand({}, {tier: told})  # type: ignore[dict-item]


@settings(deadline=None)
@given(st.integers(0, 64), DEMANDS, BEFORE, st.integers(0, 10))
def test_all_slots_are_divided_and_each_gateway_has_one_where_there_are_enough(
    slots: int, demands: dict[str, DeploymentDemand], before: dict[str, int], turn: int
) -> None:
    given_ = quotas(slots, demands, before, turn=turn)
    assert given_.keys() == demands.keys()
    assert sum(given_.values()) == slots
    assert min(given_.values()) >= (1 if slots >= len(demands) else 0)


SLOTS = st.dictionaries(st.sampled_from(("r1", "r2", "r3", "r4")), st.integers(0, 16), min_size=1)


@settings(deadline=None)
@given(SLOTS, SLOTS, DEMANDS, DEMANDS)
def test_shares_are_the_quotas_spread_over_replicas_and_never_beyond_one(
    first: dict[str, int],
    second: dict[str, int],
    demands: dict[str, DeploymentDemand],
    later: dict[str, DeploymentDemand],
) -> None:
    before: dict[str, dict[str, int]] = {}
    for slots, now in ((first, demands), (second, demands), (second, later), (first, later)):
        quota = quotas(sum(slots.values()), now, {})
        before = assign(quota, slots, before)
        for replica, own in before.items():
            assert sum(own.values()) <= slots[replica]
            assert min(own.values()) >= 0
        for gateway, due in quota.items():
            assert sum(own[gateway] for own in before.values()) == due
        assert assign(quota, slots, before) == before


def test_slots_go_to_organizations_and_not_to_requests() -> None:
    demands = {"g1": demand(flood=(1, 10, 490)), "g2": demand(small=(1, 0, 30))}
    assert quotas(32, demands, {}) == {"g1": 16, "g2": 16}
    weighty = {"g1": demand(flood=(1, 10, 490)), "g2": demand(small=(3, 0, 30))}
    assert quotas(32, weighty, {}) == {"g1": 8, "g2": 24}


def test_an_organization_counts_once_however_many_gateways_it_comes_through() -> None:
    everywhere = {"flood": (1, 0, 100)}
    demands = {
        "g1": demand(**everywhere),
        "g2": demand(**everywhere),
        "g3": demand(**everywhere, small=(1, 0, 100)),
    }
    assert quotas(36, demands, {}) == {"g1": 6, "g2": 6, "g3": 24}
    assert organization_parts(demands, "g3") == {"flood": 1 / 3}
    assert organization_parts(demands, "g1") == {"flood": 1 / 3}


def test_organizations_that_never_paid_count_as_one_and_divide_what_it_is_due() -> None:
    flood = {f"org_{number}": OrganizationDemand(1, 0, 100, False) for number in range(49)}
    demands = {
        "g1": DeploymentDemand({}, {"default": flood}),
        "g2": DeploymentDemand(
            {},
            {
                "default": {
                    "neighbour": OrganizationDemand(1, 0, 100),
                    "quiet": OrganizationDemand(1, 0, 100, False),
                }
            },
        ),
    }
    assert due_by_tier(100, demands)["default"] == pytest.approx({"g1": 49.0, "g2": 51.0})
    assert never_paid_parts(100, demands) == pytest.approx({"g1": 0.98, "g2": 0.02})
    demands["g2"].tiers["default"]["quiet"] = OrganizationDemand(1, 0, 100)
    assert due_by_tier(99, demands)["default"] == pytest.approx({"g1": 33.0, "g2": 66.0})
    assert never_paid_parts(99, {"g2": demands["g2"]}) == {}


def test_what_idle_gateways_keep_is_given_by_the_others_in_proportion() -> None:
    demands = {"g1": demand("default", a=(1, 0, 90)), "g2": demand("default", a=(1, 0, 10))}
    idle = {"g3": DeploymentDemand(), "g4": DeploymentDemand()}
    assert quotas(32, demands | idle, {}) == {"g1": 27, "g2": 3, "g3": 1, "g4": 1}


def test_what_nobody_needs_is_there_for_whoever_comes() -> None:
    demands = {"g1": demand(a=(1, 2, 0)), "g2": demand(), "g3": demand()}
    assert quotas(32, demands, {}) == {"g1": 12, "g2": 10, "g3": 10}


def test_batch_gets_what_is_idle_but_for_what_is_kept_free_for_tiers_in_use() -> None:
    flood = demand("batch", a=(9, 20, 900))
    assert quotas(32, {"g1": flood, "g2": demand("default", b=(1, 0, 12))}, {}) == {
        "g1": 19,  # of 20 that are idle 3 are kept free: evenly, as what nobody needs
        "g2": 13,
    }
    assert quotas(32, {"g1": flood, "g2": demand("flex", b=(1, 0, 12))}, {}) == {"g1": 20, "g2": 12}
    of_late = DeploymentDemand({}, {"priority": {}, "default": {}})
    assert quotas(32, {"g1": flood, "g2": of_late}, {}) == {"g1": 29, "g2": 3}
    nothing_kept = TierPolicy(reserved_share=0.0)
    assert quotas(32, {"g1": flood, "g2": of_late}, {}, policy=nothing_kept) == {"g1": 31, "g2": 1}


def test_a_tier_keeps_its_share_whatever_others_ask_for() -> None:
    demands = {"g1": demand("priority", a=(9, 100, 900)), "g2": demand("default", b=(1, 0, 90))}
    assert quotas(42, demands, {}) == {"g1": 28, "g2": 14}
    half = TierPolicy({"priority": 0.5, "default": 0.5, "flex": 0.0, "batch": 0.0})
    assert quotas(42, demands, {}, policy=half) == {"g1": 21, "g2": 21}
    every = {tier: demand(tier, a=(1, 0, 900)) for tier in TIERS}
    assert quotas(101, every, {}) == {"priority": 60, "default": 30, "flex": 10, "batch": 1}


def test_a_gateway_knows_what_part_of_its_slots_a_tier_keeps_that_needs_more() -> None:
    flood = {"flood": (1, 50, 500)}
    both = DeploymentDemand({}, demand("priority", **flood).tiers | demand(b=(1, 0, 90)).tiers)
    few = DeploymentDemand({}, demand("flex", c=(1, 1, 1)).tiers | demand("batch", **flood).tiers)
    demands = {
        "g1": both,
        **{f"g{n}": demand("priority", **flood) for n in range(2, 11)},
        "g11": few,
    }
    due, totals = due_by_tier(92, demands), added_up(demands)
    assert tier_parts(due, "g1", totals) == pytest.approx({"priority": 6 / 36, "default": 30 / 36})
    assert tier_parts(due, "g2", totals) == {"priority": 1.0}
    assert tier_parts(due, "g11", totals) == {}


def test_too_few_slots_go_round_by_what_each_gateway_is_due() -> None:
    demands = {name: demand(a=(1, 0, 5)) for name in ("g1", "g2", "g3")} | {"idle": demand()}
    held = [quotas(2, demands, {}, turn=turn) for turn in range(300)]
    assert all(sum(each.values()) == 2 and each["idle"] == 0 for each in held)
    assert all(abs(sum(each[name] for each in held) - 200) <= 2 for name in ("g1", "g2", "g3"))
    floods = {name: demand("flex", a=(1, 0, 50)) for name in ("g1", "g2", "g3")}
    urgent = floods | {"g4": demand("priority", b=(1, 0, 50))}
    held = [quotas(1, urgent, {}, turn=turn) for turn in range(700)]
    assert abs(sum(each["g4"] for each in held) - 600) <= 2


def test_a_gateway_keeps_what_it_has_within_a_slot_of_what_is_due() -> None:
    demands = {"g1": demand(a=(1, 0, 90)), "g2": demand(b=(1, 0, 90))}
    assert quotas(7, demands, {"g1": 4, "g2": 3}) == {"g1": 4, "g2": 3}
    assert quotas(7, demands, {"g1": 3, "g2": 4}) == {"g1": 3, "g2": 4}


def test_few_slots_move_when_few_change_hands() -> None:
    slots = {f"r{number}": 8 for number in range(4)}
    before = assign({"g1": 11, "g2": 11, "g3": 10}, slots, {})
    after = assign({"g1": 10, "g2": 11, "g3": 11}, slots, before)
    moved = sum(
        abs(after[replica][gateway] - before[replica][gateway])
        for replica in slots
        for gateway in after[replica]
    )
    assert moved == 2


class Counting(dict[str, int]):
    """Slots that count how often they are looked up."""

    looks = 0

    def __getitem__(self, replica: str) -> int:
        self.looks += 1
        return super().__getitem__(replica)


def test_a_move_is_found_without_looking_at_every_replica() -> None:
    slots = Counting({f"r{number}": 64 for number in range(100)})
    first = assign({"g1": 6_400}, slots, {})
    assert slots.looks < 4 * 6_400
    slots.looks = 0
    both = assign({"g1": 3_200, "g2": 3_200}, slots, first)
    assert slots.looks < 4 * 6_400
    assert {tuple(own.values()) for own in both.values()} == {(32, 32)}
