"""How long whoever was not answered waits before it asks again."""

import random
from collections.abc import Callable
from dataclasses import dataclass

DOUBLINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `first_seconds` with each failure in a row, up to `max_seconds`; of that half
    is left to chance, so that many who failed together do not come back together."""

    first_seconds: float
    max_seconds: float
    jitter: Callable[[], float] = random.random

    def pause_seconds(self, failures_in_a_row: int) -> float:
        """Return how long to wait after so many failures, at least one."""
        doubled = self.first_seconds * 2 ** min(failures_in_a_row - 1, DOUBLINGS_MAX)
        return min(self.max_seconds, doubled) * (0.5 + self.jitter() / 2)
