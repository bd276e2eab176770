"""The division of slots among service tiers, one rule for the fleet and for each gateway.

`priority`, `default` and `flex` have guaranteed shares, which add up to all slots. What a tier does
not need of its share is lent to the others by their guarantees. `batch` has no guarantee: it takes
what is idle, less a reserve.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from serving.contract.environment import ConfigError, Environment, text
from serving.contract.units import TIERS, Tier

Guarantees = Mapping[Tier, float]
"""The share of all slots that each tier has while it needs them. Together 1, that of `batch` 0."""
DEFAULT_PERCENTAGES = "priority=60,default=30,flex=10"
URGENT: tuple[Tier, ...] = ("priority", "default")
"""The tiers for which `batch` leaves slots free."""

Key = TypeVar("Key")


def read_guarantees(environ: Environment, name: str) -> Guarantees:
    """Return the guarantees that a variable sets in percent. Raises ConfigError unless they are
    whole numbers that add up to 100."""
    value = text(environ, name, DEFAULT_PERCENTAGES)
    found = re.fullmatch(r"priority=(\d{1,3}),default=(\d{1,3}),flex=(\d{1,3})", value, re.ASCII)
    percentages = [int(number) for number in found.groups()] if found else []
    if sum(percentages) != 100:
        wanted = f"percentages that add up to 100, such as {DEFAULT_PERCENTAGES}"
        raise ConfigError(f"{name} is {value!r}; wanted {wanted}")
    return {tier: share / 100 for tier, share in zip(TIERS, [*percentages, 0], strict=True)}


DEFAULT_GUARANTEES = read_guarantees({}, "")


def fill(slots: float, needs: Mapping[Key, tuple[float, float]]) -> dict[Key, float]:
    """Return how many of so many slots each one is due, by its weight and its need (weighted
    max-min fairness).

    Nobody is due more than it needs, nor less by its weight than another while it needs more.
    Those of weight 0 are due what the others leave, the first of them first.
    """
    due: dict[Key, float] = {}
    weights = sum(weight for weight, _ in needs.values())
    for name, (weight, need) in sorted(needs.items(), key=lambda item: _level(*item[1])):
        due[name] = min(need, max(0.0, slots * weight / weights if weight else slots))
        slots -= due[name]
        weights -= weight
    return due


def _level(weight: float, need: float) -> tuple[bool, float]:
    return not weight, need / weight if weight else 0.0


def divide(
    slots: float,
    needs: Mapping[Tier, float],
    guarantees: Guarantees = DEFAULT_GUARANTEES,
    reserved: float = 0.0,
) -> dict[Tier, float]:
    """Return how many of so many slots each tier is due that needs any; `reserved` of them are
    kept free of `batch`.

    Fractions of slots are due too: rounded down, a tier that is due less than one would have none.
    """
    guaranteed: dict[Tier, tuple[float, float]] = {
        tier: (guarantees[tier], needs[tier])
        for tier in TIERS
        if tier != "batch" and needs.get(tier)
    }
    due = fill(slots, guaranteed)
    if need := needs.get("batch"):
        due["batch"] = min(need, max(0.0, slots - sum(due.values()) - reserved))
    return due


def reserved_slots(tiers: int, share: float, slots: int, all_slots: int) -> int:
    """Return how many of a gateway's slots are kept free of `batch`, while so many urgent tiers are
    in use: its part, rounded up, of `share` of all gateways' slots for each of them.

    That is at least one slot for each tier, unless `share` is 0, and never all of a gateway's, so
    that a request can run by itself.
    """
    if not (share and all_slots):
        return 0
    reserved = tiers * max(1, round(share * all_slots))
    return max(0, min(slots - 1, -(-reserved * slots // all_slots)))
