"""No load of another tier refuses a tier below its guarantee, for any cause, on one gateway and on
four."""

from dataclasses import dataclass
from typing import Any

import pytest

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import TIERS, Tier
from serving.pool.slot_request import SlotRequest
from serving.pool.tier_queue import QueueLimits
from tests.serving.pool.cluster import WIDTH_MAX, Cluster, leaping

SLOTS = 32
SECONDS = 8.0
ANSWER_SECONDS = 0.5
PATIENCE = 4.0
BELOW: dict[Tier, int] = {"priority": 15, "default": 7, "flex": 2}
"""Clients of a tier, each with one request at a time: together below its guarantee of 32 slots."""


@dataclass(frozen=True)
class Flood:
    """What refuses the requests of a flood: clients at each gateway, and what bounds them."""

    clients: int = 100
    organizations: int = 100
    patience: float = 60.0
    options: tuple[tuple[str, Any], ...] = ()


FLOODS = {
    "pressed": Flood(options=(("tokens_max", 1_000),)),
    "queue_full": Flood(options=(("bounds", QueueLimits(requests=50)),)),
    "outweighed": Flood(organizations=5, options=(("bounds", QueueLimits(requests=50)),)),
    "too_long": Flood(patience=0.8),
    "waited": Flood(patience=0.2),
}
PAIRS: tuple[tuple[Tier, Tier], ...] = (
    ("priority", "flex"),
    ("batch", "default"),
    ("priority", "default"),
    ("default", "priority"),
    ("flex", "default"),
)
"""Which tier floods, and which one is below its guarantee."""


def requests(tier: Tier, name: str, patience: float) -> SlotRequest:
    return SlotRequest(name, tier=tier, input_tokens=20, output_tokens_max=20, seconds_max=patience)


@pytest.mark.parametrize(
    ("flooding", "tier", "gateways"),
    [
        *((*pair, 1) for pair in PAIRS),
        *((*pair, 4) for pair in PAIRS[:2]),
        *(pytest.param(*pair, 4, marks=pytest.mark.full) for pair in PAIRS[2:]),
    ],
)
@pytest.mark.parametrize("cause", FLOODS)
def test_a_tier_below_its_guarantee_is_refused_for_no_load_of_another(
    cause: str, flooding: Tier, tier: Tier, gateways: int
) -> None:
    flood = FLOODS[cause]

    async def run() -> Cluster:
        cluster = Cluster(gateways, SLOTS, **dict(flood.options))
        few = [
            (0, requests(tier, f"{tier}_{number}", PATIENCE), ANSWER_SECONDS)
            for number in range(BELOW[tier])
        ]
        many = [
            (
                gateway,
                requests(flooding, f"org_{number % flood.organizations}", flood.patience),
                ANSWER_SECONDS,
            )
            for gateway in range(gateways)
            for number in range(flood.clients)
        ]
        await cluster.run(SECONDS, *many, *few)
        return cluster

    cluster = leaping(run())
    assert cluster.refused[flooding, cause] > 0, "the flood is refused for it"
    assert {why: count for (of, why), count in cluster.refused.items() if of == tier} == {}
    alone = BELOW[tier] * SECONDS / ANSWER_SECONDS
    assert cluster.served[tier] >= 0.5 * alone


@pytest.mark.parametrize("gateways", [1, 4])
def test_tiers_that_flood_have_the_slots_of_their_guarantees(gateways: int) -> None:
    async def run() -> Cluster:
        cluster = Cluster(gateways, SLOTS)
        clients = [
            (number % gateways, requests(tier, f"{tier}_{number}", 60.0), ANSWER_SECONDS)
            for tier in TIERS
            for number in range(4 * SLOTS)
        ]
        await cluster.run(SECONDS, *clients)
        return cluster

    cluster = leaping(run())
    total = cluster.slot_seconds.total()
    assert total >= 0.85 * SLOTS * SECONDS
    for tier, share in DEFAULT_GUARANTEES.items():
        assert abs(cluster.slot_seconds[tier] / total - share) <= 0.05, tier


def test_one_slot_goes_round_four_gateways_by_tiers_and_not_by_gateways() -> None:
    async def run() -> Cluster:
        cluster = Cluster(4, 1)
        urgent = [(0, requests("priority", "a", 60.0), 0.1)] * 5
        others = [(number, requests("flex", "b", 60.0), 0.1) for number in (1, 2, 3)] * 5
        await cluster.run(120.0, *urgent, *others)
        return cluster

    cluster = leaping(run())
    assert cluster.served["priority"] >= 3 * cluster.served["flex"] > 0


@pytest.mark.parametrize("gateways", [1, 4])
def test_wide_requests_of_all_gateways_exceed_the_slots_by_one_request(gateways: int) -> None:
    async def run() -> Cluster:
        cluster = Cluster(gateways, SLOTS)
        wide = SlotRequest("wide", sequences=WIDTH_MAX, input_tokens=20, output_tokens_max=160)
        clients = [
            (gateway, request, ANSWER_SECONDS)
            for gateway in range(gateways)
            for request in (*[wide] * 4, *[requests("default", "narrow", 60.0)] * 2 * SLOTS)
        ]
        await cluster.run(SECONDS, *clients)
        return cluster

    cluster = leaping(run())
    assert cluster.in_flight_max <= SLOTS + WIDTH_MAX - 1
    assert cluster.served_by["wide"] >= 0.25 * cluster.served_by["narrow"] / WIDTH_MAX
    assert cluster.slot_seconds.total() >= 0.85 * SLOTS * SECONDS
