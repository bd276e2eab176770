"""The share of slots that each service tier keeps while it has work, whatever the others ask for.

The fleet divides a deployment's slots among gateways by it, and each gateway its own among tiers.
"""

from collections.abc import Mapping

from serving.contract.units import TIERS, Tier

GUARANTEED: Mapping[Tier, float] = {"priority": 0.5, "default": 0.3, "flex": 0.15, "batch": 0.05}
"""Together all slots. What a tier does not need is lent, to the most urgent tier first."""


def divide(
    slots: float, needs: Mapping[Tier, float], guaranteed: Mapping[Tier, float] = GUARANTEED
) -> dict[Tier, float]:
    """Return how many of so many slots each tier is due: what it needs, up to its guaranteed
    share; then what is left goes by urgency. Shares of more than all slots count in proportion."""
    wanted = {tier: need for tier in TIERS if (need := needs.get(tier, 0.0)) > 0}
    scale = slots / max(1.0, sum(guaranteed[tier] for tier in wanted))
    due = {tier: min(need, guaranteed[tier] * scale) for tier, need in wanted.items()}
    left = max(0.0, slots - sum(due.values()))
    for tier, need in wanted.items():
        more = min(need - due[tier], left)
        due[tier] += more
        left -= more
    return due
