"""How much money was asked for lately: what a lease's size follows."""

from collections import deque

WINDOW_SECONDS = 30.0


class RecentDemand:
    """Nanos held in the last 30 seconds, kept per second."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()
        self._total = 0

    def add(self, nanos: int, now: float) -> None:
        """Count `nanos` as held at `now`."""
        second, before = int(now), 0
        if self._seconds and self._seconds[-1][0] == second:
            before = self._seconds.pop()[1]
        self._seconds.append((second, before + nanos))
        self._total += nanos

    def total(self, now: float) -> int:
        """Return what was held in the window that ends at `now`."""
        while self._seconds and self._seconds[0][0] < now - WINDOW_SECONDS:
            self._total -= self._seconds.popleft()[1]
        return self._total
