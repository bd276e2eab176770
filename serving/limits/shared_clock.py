"""The time by which all gateways count: Redis's as heard last, carried on by a clock that is never
set. Neither a step of this host's clock nor one of Redis's host moves it."""

import time
from collections.abc import Callable

from serving.contract.limits import EPOCH

TRUSTED_SECONDS = 1_800.0
"""How long what was heard is carried on: clocks drift apart by a tenth of `TOLERANCE` meanwhile."""
YIELD_SECONDS = 60.0
"""Whoever put the shared time right and is contradicted within this was wrong itself: a machine
that was suspended does not know it."""
TOLERANCE = 250e3
"""Of microseconds. What Redis says otherwise than this is a step of its clock, not a slow call."""


class SharedClock:
    """In microseconds since `EPOCH`; before anything was heard, by this host's clock."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._offset = (wall() - EPOCH - monotonic()) * 1e6
        self._heard_at: float | None = None
        self._corrected_at = -YIELD_SECONDS

    def now(self) -> float:
        """Return the present moment."""
        return self._monotonic() * 1e6 + self._offset

    def expected(self) -> float | None:
        """Return the present moment where it is known well enough to doubt Redis, else None."""
        heard_at = self._heard_at
        if heard_at is None or self._monotonic() - heard_at > TRUSTED_SECONDS:
            return None
        return self.now()

    def contradicts(self, told: float) -> bool:
        """Tell whether Redis's clock was stepped, by a time that it told just now."""
        expected = self.expected()
        if expected is None or self._monotonic() - self._corrected_at < YIELD_SECONDS:
            return False
        return abs(told - expected) > TOLERANCE

    def correct(self, raw: float) -> float:
        """Return what to add to Redis's own clock, which tells `raw` now, to make it this one."""
        self._corrected_at = self._monotonic()
        return self.now() - raw

    def hear(self, told: float) -> float:
        """Take over a time that Redis told just now; return by how much ours was behind."""
        heard_at = self._monotonic()
        offset = told - heard_at * 1e6
        behind, self._offset, self._heard_at = offset - self._offset, offset, heard_at
        return behind
