"""How fast a queue moves: what tells a request at its coming when its turn would be."""

from serving.contract.tiers import GUARANTEED
from serving.contract.units import TIERS, Tier

MEMORY_SECONDS = 30.0
"""Of the time in which somebody waited: what is longer ago counts less and less."""
SEEN_SECONDS_MIN = 1.0
SEEN_SLOTS_MIN = 8.0
RECENT = 0.3
"""How much the latest second counts in the rate at which a tier's requests come in."""
ABOVE: dict[Tier, tuple[Tier, ...]] = {tier: TIERS[:place] for place, tier in enumerate(TIERS)}
BELOW: dict[Tier, tuple[Tier, ...]] = {tier: TIERS[place + 1 :] for place, tier in enumerate(TIERS)}


class Pace:
    """Slots given to anybody, over the time in which somebody waited; and by tier, slots of those
    that came in."""

    def __init__(self) -> None:
        self._slots = 0.0
        self._seconds = 0.0
        self._at = 0.0
        self._coming = dict.fromkeys(TIERS, 0.0)
        self._came = dict.fromkeys(TIERS, 0)
        self._second_at = 0.0

    def look(self, now: float, *, waited: bool) -> None:
        """Let time pass, in which somebody waited or nobody did."""
        passed, self._at = now - self._at, now
        if waited and passed > 0:
            kept = 0.5 ** (passed / MEMORY_SECONDS)
            self._slots *= kept
            self._seconds = self._seconds * kept + passed
        if now - self._second_at >= 1.0:
            self._end_second(now - self._second_at)
            self._second_at = now

    def came_in(self, tier: Tier, slots: int) -> None:
        """A request waits, or need not."""
        self._came[tier] += slots

    def gave(self, slots: int) -> None:
        """So many slots were given, while somebody waited."""
        self._slots += slots

    def growth(self, tier: Tier) -> float:
        """Return how many slots a tier's requests come in for, for each that it is given."""
        left = self._left(tier)
        return min(2.0, self._coming[tier] / left) if left else 1.0

    def seconds_for(self, slots: float, tier: Tier, before: float = 0.0) -> float:
        """Return how long it takes until a tier was given so many slots, and those above it the
        ones that they wait for `before` that; its share is its own, whatever waits above. 0 while
        too little was seen to tell."""
        left = self._left(tier)
        if not left:
            return 0.0
        return min(slots / (GUARANTEED[tier] * self._slots_a_second), (slots + before) / left)

    def _left(self, tier: Tier) -> float:
        """Return how many slots a second are given to a tier: what those above leave, and those
        below do not have of their shares; no less than its own share."""
        pace = self._slots_a_second
        left = pace - sum(self._coming[other] for other in ABOVE[tier])
        left -= sum(min(self._coming[other], GUARANTEED[other] * pace) for other in BELOW[tier])
        return max(GUARANTEED[tier] * pace, left)

    @property
    def _slots_a_second(self) -> float:
        """Slots given while somebody waited; 0 where nobody knows."""
        if self._seconds < SEEN_SECONDS_MIN or self._slots < SEEN_SLOTS_MIN:
            return 0.0
        return self._slots / self._seconds

    def _end_second(self, seconds: float) -> None:
        kept = (1.0 - RECENT) ** seconds
        for tier, slots in self._came.items():
            self._coming[tier] = kept * self._coming[tier] + (1.0 - kept) * slots / seconds
            self._came[tier] = 0
