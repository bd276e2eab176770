"""What a pool refuses, and when: by the input tokens that wait or run, and by how long a request
would wait.

Every tier may use the tokens that are free, `batch` all but a reserve. A tier that holds less
than its guaranteed share is let in beyond that: nothing that other tiers hold refuses its
requests. So a gateway holds less than twice its bound, whatever comes. Capacity that
organizations share is divided by dynamic thresholds, as switches divide their buffers (Choudhury
and Hahne, 1998): each may hold as much as it leaves free, times its weight. Alone it has half,
and the more others hold, the earlier it is refused. All organizations that never paid hold together
what one may, and each of them as much as they leave of that.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple, Protocol

from serving.contract.tiers import Guarantees, divide
from serving.contract.units import TIERS, Tier
from serving.pool.slot_request import SlotRequest


class Holder(Protocol):
    """Who holds a part of what organizations share: an organization, or a request of one."""

    @property
    def organization_id(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def is_paying(self) -> bool: ...


class SharedCapacity:
    """Of so many bytes, tokens or requests in all. An organization may hold `share` for each that
    is left: by default its weight."""

    def __init__(self, size_max: int, share: int | None = None) -> None:
        self.held = 0
        self.size_max = size_max
        self._share = share
        self._never_paid = 0
        """Of what is held: by all organizations together that never paid."""
        self._of: dict[str, int] = {}

    def fits(self, holder: Holder, size: int, free: float | None = None) -> bool:
        """Tell whether somebody may hold so much more, where so much is `free`: by default what
        nobody holds."""
        left = (self.size_max - self.held if free is None else free) - size
        if left < 0:
            return False
        own = self._of.get(holder.organization_id, 0) + size
        if holder.is_paying:
            return own <= (self._share or max(1, holder.weight)) * left
        return own <= (self._share or 1) * left - self._never_paid

    def holds(self, holder: Holder) -> bool:
        """Tell whether somebody's organization holds anything."""
        return holder.organization_id in self._of

    def add(self, holder: Holder, size: int) -> None:
        """Hold more, or less."""
        self.held += size
        if not holder.is_paying:
            self._never_paid += size
        own = self._of.get(holder.organization_id, 0) + size
        if own:
            self._of[holder.organization_id] = own
        else:
            self._of.pop(holder.organization_id, None)


POOL_TOKENS_MAX = 48_000_000
ALL_TOKENS_MAX = 96_000_000
BATCH_PART = 0.8
"""Of all tokens: up to where `batch` may use what is free."""


class LoadShedder:
    """Of one pool, `within` that of all of them."""

    def __init__(
        self, tokens_max: int = POOL_TOKENS_MAX, within: "LoadShedder | None" = None
    ) -> None:
        self.tokens = 0
        """Of what waits or runs."""
        self._tokens_max = tokens_max
        self._rooms: dict[Tier, SharedCapacity] = {
            tier: SharedCapacity(tokens_max) for tier in TIERS
        }
        self._levels: tuple[LoadShedder, ...] = (self, *(within._levels if within else ()))

    def fits(self, request: SlotRequest, guarantee: float) -> bool:
        """Tell whether one more request may come in, whose tier is guaranteed such a share."""
        size, part = request.input_tokens, BATCH_PART if request.tier == "batch" else 1.0
        for level in self._levels:
            room, most = level._rooms[request.tier], level._tokens_max
            left = max(most * part - level.tokens, most * guarantee - room.held)
            # Where all organizations of a tier leave half of it, so does each.
            is_easy = request.is_paying and room.held + 2 * size <= left
            if not (is_easy or room.fits(request, size, left)):
                return False
        return True

    def add(self, request: SlotRequest) -> None:
        """One came in."""
        self._add(request, request.input_tokens)

    def remove(self, request: SlotRequest) -> None:
        """One has ended, or left."""
        self._add(request, -request.input_tokens)

    def _add(self, request: SlotRequest, tokens: int) -> None:
        for level in self._levels:
            level.tokens += tokens
            level._rooms[request.tier].add(request, tokens)


MEMORY_SECONDS = 30.0
"""Of the time in which somebody waited: what is longer ago counts less and less."""
SEEN_SECONDS_MIN = 1.0
SEEN_SLOTS_MIN = 8.0
RECENT = 0.3
"""How much the latest second counts in the rate at which a tier's requests come in."""
NO_SHARE_LEVEL = 1e9
"""What other tiers may be given for their guarantees before one that has none: all they need."""
RATE_PART_MIN = 1e-6
"""Of all slots a second: below it rounding errors decide."""


class TierLoad(NamedTuple):
    """The slots that a tier uses, and those that its requests wait for."""

    running: int
    waiting: int


class SlotRate:
    """Slots given to anybody, over the time in which somebody waited."""

    def __init__(self) -> None:
        self.slots = 0.0
        self._seconds = 0.0

    @property
    def per_second(self) -> float:
        """Slots a second; 0 where nobody knows."""
        if self._seconds < SEEN_SECONDS_MIN or self.slots < SEEN_SLOTS_MIN:
            return 0.0
        return self.slots / self._seconds

    def wait(self, seconds: float) -> None:
        """Let time pass, in which somebody waited."""
        kept = 0.5 ** (seconds / MEMORY_SECONDS)
        self.slots *= kept
        self._seconds = self._seconds * kept + seconds


class WaitPredictor:
    """Slots given to anybody, while somebody waited; and by tier, slots of those that came in.

    While `batch` alone waits, for slots that are kept free of it, only its own pace is to be seen.
    """

    def __init__(self) -> None:
        self._rate = SlotRate()
        self._rate_of_batch = SlotRate()
        self._at = 0.0
        self._coming = dict.fromkeys(TIERS, 0.0)
        self._came = dict.fromkeys(TIERS, 0)
        self._second_at = 0.0

    def advance(self, now: float, *, waited: bool, for_reserved: bool = False) -> None:
        """Let time pass, in which somebody waited, for slots kept free of `batch` or for any, or
        nobody did."""
        passed, self._at = now - self._at, now
        if waited and passed > 0:
            self._rate_of_batch.wait(passed)
            if not for_reserved:
                self._rate.wait(passed)
        if now - self._second_at >= 1.0:
            self._end_second(now - self._second_at)
            self._second_at = now

    def record_arrival(self, tier: Tier, slots: int) -> None:
        """A request waits, or need not."""
        self._came[tier] += slots

    def record_grant(self, slots: int, *, for_reserved: bool = False) -> None:
        """So many slots were given, while somebody waited."""
        self._rate_of_batch.slots += slots
        if not for_reserved:
            self._rate.slots += slots

    def growth(self, tier: Tier, guarantees: Guarantees) -> float:
        """Return how many slots a tier's requests come in for, for each that it is given, at most
        2."""
        if not (pace := self._slots_a_second(tier)):
            return 1.0
        given = divide(pace, {**self._coming, tier: inf}, guarantees)[tier]
        return min(2.0, self._coming[tier] / given) if given else 2.0

    def seconds_for(
        self, slots: float, tier: Tier, loads: Mapping[Tier, TierLoad], guarantees: Guarantees
    ) -> float:
        """Return how long it takes until a tier was given so many slots; 0 while too little was
        seen to tell.

        Until then another tier is given what it waits for and what comes meanwhile, and no more
        than leaves both with the same use of their guarantees.
        """
        pace, share = self._slots_a_second(tier), guarantees[tier]
        if not pace or slots <= 0:
            return 0.0
        level = (loads[tier].running + slots) / share if share else NO_SHARE_LEVEL
        most = {
            other: max(0.0, level * guarantees[other] - loads[other].running)
            for other in TIERS
            if other != tier
        }
        seconds = (slots + sum(most.values())) / pace
        for _ in most:  # Newton's method: each step finds a tier that needs less than its most.
            given, rate = slots, pace
            for other, bound in most.items():
                waiting, coming = loads[other].waiting, self._coming[other]
                if waiting + coming * seconds < bound:
                    given, rate = given + waiting, rate - coming
                else:
                    given += bound
            seconds = given / max(rate, RATE_PART_MIN * pace)
        return seconds

    def _slots_a_second(self, tier: Tier) -> float:
        return (self._rate_of_batch if tier == "batch" else self._rate).per_second

    def _end_second(self, seconds: float) -> None:
        kept = (1.0 - RECENT) ** seconds
        for tier, slots in self._came.items():
            self._coming[tier] = kept * self._coming[tier] + (1.0 - kept) * slots / seconds
            self._came[tier] = 0
