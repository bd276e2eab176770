"""What a budget was used for lately: how much money a gateway should have at hand."""

from collections import deque

SPEND_WINDOW_SECONDS = 60
BUCKET_SECONDS = 5
AHEAD_SECONDS = 600
"""A gateway keeps ten minutes' spend, so that it goes on that long without control."""
IDLE_SECONDS = 300.0
"""A budget that nobody held on for this long is idle: its leases run out and go back."""


class SpendForecast:
    """Nanos charged in the last minute, and the most that was held in the last minutes.

    `now` is monotonic seconds throughout; charges are kept per five seconds, holds per half of
    `IDLE_SECONDS`, so that both cost the same however many requests there are.
    """

    __slots__ = ("_buckets", "_charged", "_epoch", "_held", "_held_before", "used_at")

    def __init__(self) -> None:
        self.used_at = float("-inf")
        self._buckets: deque[tuple[int, int]] = deque()
        self._charged = 0
        self._epoch = 0
        self._held = (0, 0)
        self._held_before = (0, 0)

    def is_idle(self, now: float) -> bool:
        """Whether nobody has held on the budget lately."""
        return now - self.used_at >= IDLE_SECONDS

    def record_reservation(self, nanos: int, held_nanos: int, now: float) -> None:
        """Count a hold of `nanos`, after which `held_nanos` are held at once."""
        self.used_at = now
        self._advance(now)
        largest, most = self._held
        self._held = (max(largest, nanos), max(most, held_nanos))

    def record_charge(self, nanos: int, now: float) -> None:
        """Count what a request really took."""
        bucket, before = int(now) // BUCKET_SECONDS, 0
        if self._buckets and self._buckets[-1][0] == bucket:
            before = self._buckets.pop()[1]
        self._buckets.append((bucket, before + nanos))
        self._charged += nanos

    def ahead_nanos(self, now: float) -> int:
        """Return ten minutes' spend and what is held at once: the money to have at hand.

        A minute begun counts whole, so that what is spent evenly is never taken for less.

        Worked example: 3,000 nanos charged in the last minute and at most 500 held at once are
        3,000 * 10 + 500 = 30,500 nanos.
        """
        self._advance(now)
        oldest = int(now - SPEND_WINDOW_SECONDS) // BUCKET_SECONDS
        while self._buckets and self._buckets[0][0] < oldest:
            self._charged -= self._buckets.popleft()[1]
        held_at_once = max(self._held[1], self._held_before[1])
        return self._charged * AHEAD_SECONDS // SPEND_WINDOW_SECONDS + held_at_once

    def largest_hold_nanos(self, now: float) -> int:
        """Return the largest single hold of the last minutes."""
        self._advance(now)
        return max(self._held[0], self._held_before[0])

    def _advance(self, now: float) -> None:
        epoch = int(now / (IDLE_SECONDS / 2))
        if epoch == self._epoch:
            return
        self._held_before = self._held if epoch == self._epoch + 1 else (0, 0)
        self._held, self._epoch = (0, 0), epoch
