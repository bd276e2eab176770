"""Slots that stay free for tiers whose clients wait, while these are in use.

An engine does not give a slot back for somebody more urgent: what is to begin at once must find one
free.
"""

from math import sqrt

from serving.contract.units import Tier

IN_USE_SECONDS = 600.0
"""For so long after its last request a tier has slots kept free for it."""
KEPT_FOR: dict[Tier, tuple[Tier, ...]] = {
    "priority": (),
    "default": ("priority",),
    "flex": ("priority", "default"),
    "batch": ("priority", "default"),
}
"""For which tiers each must leave slots free."""


class Reserve:
    """`share` is the part of all slots that each such tier has kept free of the tiers below it.

    Whoever has a part of the slots keeps more than that part of it: few requests vary more for
    their number than many do, by the root of it.
    """

    def __init__(self, share: float = 0.1) -> None:
        self.share = share
        self._used_at: dict[Tier, float] = {}

    def note(self, tier: Tier, now: float) -> None:
        """A request of a tier came."""
        self._used_at[tier] = now

    def tiers(self, tier: Tier, now: float) -> int:
        """Return for how many tiers in use a request of this one must leave slots free."""
        used_at = self._used_at
        above = [other for other in KEPT_FOR[tier] if other in used_at]
        return sum(now - used_at[other] < IN_USE_SECONDS for other in above) if above else 0

    def slots(self, tiers: int, of: int, total: int) -> int:
        """Return how many `of` a gateway's slots, of a `total`, must stay free: at least one for
        each of so many tiers, and never so many that a request could not run by itself."""
        each = max(1, round(self.share * sqrt(of * total))) if self.share else 0
        return max(0, min(of - 1, tiers * each))
