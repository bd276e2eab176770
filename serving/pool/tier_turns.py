"""Turns among tiers: to each by its share of the slots, over time where that is less than one."""

from collections.abc import Collection
from math import exp, inf

from serving.contract.tiers import DEFAULT_GUARANTEES, Guarantees
from serving.contract.units import TIERS, Tier

MEMORY_SECONDS = 10.0
"""Over which the slots that a tier had are averaged."""
EQUAL = 0.25
"""How far apart two tiers' slots divided by their shares may be to count as equal: by less than a
slot."""


class TierTurns:
    """Of one gateway; `shares` of its slots are what tiers keep while they have work."""

    def __init__(self) -> None:
        self.shares: Guarantees = DEFAULT_GUARANTEES
        self._running = dict.fromkeys(TIERS, 0)
        self._mean = dict.fromkeys(TIERS, 0.0)
        self._at = dict.fromkeys(TIERS, 0.0)

    def note(self, tier: Tier, running: int, now: float) -> None:
        """From now on a tier has so many slots."""
        self._mean[tier] = self._mean_of(tier, now)
        self._running[tier], self._at[tier] = running, now

    def next_of(self, waiting: Collection[Tier], slots: int, now: float) -> Tier:
        """Return which of the tiers that wait, the most urgent first, has the fewest slots for its
        share; of equal ones the most urgent. A tier without a share is next where no other waits.

        Giving each free slot to that tier divides all slots as `serving.contract.tiers` says.
        """
        levels = {tier: self._level(tier, slots, now) for tier in waiting}
        least = min(levels.values())
        return next(tier for tier, level in levels.items() if level <= least + EQUAL)

    def _level(self, tier: Tier, slots: int, now: float) -> float:
        """Return a tier's slots divided by its share. Who is due less than one has one now and
        then; what anybody had more while nobody else wanted it is no debt."""
        running, share = self._running[tier], self.shares[tier]
        if not share:
            return inf
        if share * slots >= 1:
            return running / share
        return max(running, min(1.0, self._mean_of(tier, now))) / share

    def _mean_of(self, tier: Tier, now: float) -> float:
        kept = exp(-max(0.0, now - self._at[tier]) / MEMORY_SECONDS)
        return kept * self._mean[tier] + (1.0 - kept) * self._running[tier]
