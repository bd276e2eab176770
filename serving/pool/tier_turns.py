"""Turns among tiers: to each by its share of the slots, over time where that is less than one."""

from collections.abc import Iterable, Mapping
from math import exp

from serving.contract.tiers import GUARANTEED, divide
from serving.contract.units import TIERS, Tier

MEMORY_SECONDS = 10.0
"""Over which the slots that a tier had are averaged."""
ABOUT = 0.25
"""Of what a tier is due: how much less another must have to go before a more urgent one."""


class TierTurns:
    """`guaranteed` are the shares that tiers keep at this gateway."""

    def __init__(self) -> None:
        self.guaranteed: Mapping[Tier, float] = GUARANTEED
        self._running = dict.fromkeys(TIERS, 0)
        self._mean = dict.fromkeys(TIERS, 0.0)
        self._at = dict.fromkeys(TIERS, 0.0)

    def note(self, tier: Tier, running: int, now: float) -> None:
        """From now on a tier has so many slots."""
        self._mean[tier] = self._mean_of(tier, now)
        self._running[tier], self._at[tier] = running, now

    def next_of(
        self, waiting: Iterable[Tier], slots: int, needs: Mapping[Tier, float], now: float
    ) -> Tier:
        """Return which of the tiers that wait has least of what it is due; of
        those that have about as little the most urgent. `waiting` begins with the most urgent."""
        due = divide(slots, needs, self.guaranteed)
        parts = {tier: self._has(tier, due[tier], now) / (due[tier] or 1e-9) for tier in waiting}
        least = min(parts.values())
        return next(tier for tier, part in parts.items() if part <= least + ABOUT)

    def is_below_share(self, tier: Tier, slots: int, now: float) -> bool:
        """Tell whether a tier has less than its share of all, so that nothing is kept from it."""
        due = GUARANTEED[tier] * slots
        return self._has(tier, due, now) < due

    def _has(self, tier: Tier, due: float, now: float) -> float:
        """Return how many slots a tier has. Who is due less than one has one now and then; what
        anybody had more while nobody else wanted it is no debt."""
        running = self._running[tier]
        return running if due >= 1 else max(running, min(1.0, self._mean_of(tier, now)))

    def _mean_of(self, tier: Tier, now: float) -> float:
        kept = exp(-max(0.0, now - self._at[tier]) / MEMORY_SECONDS)
        return kept * self._mean[tier] + (1.0 - kept) * self._running[tier]
