"""How long replicas took of late, told apart by the size of the prompt.

A prompt of 8,000 tokens takes longer than one of 80 on any replica: times are only ever compared
among prompts whose lengths are within a factor of two.
"""

from collections import deque
from collections.abc import Iterator
from math import ceil

SECONDS = 60.0
"""What is longer ago counts no more."""
SAMPLES_MAX = 32
"""Of one replica and one size, the latest."""


class Times:
    """Of the replicas of one pool; `now` is monotonic seconds throughout."""

    def __init__(self) -> None:
        self._sizes: dict[int, dict[str, deque[tuple[float, float]]]] = {}

    def note(self, replica_id: str, tokens: int, seconds: float, now: float) -> None:
        """Take in how long a prompt of so many tokens took."""
        of_size = self._sizes.setdefault(tokens.bit_length(), {})
        times = of_size.get(replica_id)
        if times is None:
            times = of_size[replica_id] = deque(maxlen=SAMPLES_MAX)
        times.append((now, seconds))

    def sizes_of(self, replica_id: str) -> list[int]:
        """Return the sizes that a replica was seen with."""
        return [size for size, of_size in self._sizes.items() if replica_id in of_size]

    def of(self, replica_id: str, size: int, now: float) -> list[float]:
        """Return what a replica took for prompts of one size."""
        times = self._sizes.get(size, {}).get(replica_id, ())
        return [seconds for at, seconds in times if now - at <= SECONDS]

    def of_others(self, replica_id: str, size: int, now: float) -> list[float]:
        """Return what all the others took for such prompts, in order."""
        return sorted(self._others(replica_id, size, now))

    def _others(self, replica_id: str, size: int, now: float) -> Iterator[float]:
        for other in self._sizes.get(size, {}):
            if other != replica_id:
                yield from self.of(other, size, now)

    def forget(self, replica_id: str) -> None:
        """A replica is gone, or begins anew."""
        for of_size in self._sizes.values():
            of_size.pop(replica_id, None)


def quantile(ordered: list[float], share: float) -> float:
    """Return the least value that so large a share of all does not exceed."""
    return ordered[max(0, ceil(len(ordered) * share) - 1)]
