"""How long replicas took of late, told apart by the size of the prompt.

A prompt of 8,000 tokens takes longer than one of 80 on any replica: times are only ever compared
among prompts whose lengths are within a factor of two.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from math import ceil
from statistics import median

import structlog

from serving.engine.events import TokenUsage
from serving.pool.replicas import Replica

log = structlog.get_logger(__name__)


SECONDS = 60.0
"""What is longer ago counts no more."""
SAMPLES_MAX = 32
"""Of one replica and one size, the latest."""


class LatencySamples:
    """Of the replicas of one pool; `now` is monotonic seconds throughout."""

    def __init__(self) -> None:
        self._sizes: dict[int, dict[str, deque[tuple[float, float]]]] = {}

    def record(self, replica_id: str, tokens: int, seconds: float, now: float) -> None:
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


TIMES_SLOWER = 3.0
OUT_OF = 3
"""One of so many ready replicas is out for being slow at most, or one where they are fewer; and
never the last that works."""
SAMPLES_MIN = 8
"""Of the replica, and of its peers in each size that counts."""
LOOK_SECONDS = 1.0
"""Between two looks at one replica."""
FIRST_SECONDS_MIN = 0.05
EACH_SECONDS_MIN = 0.005
"""Peers are thought to take no less: differences below that are nobody's trouble."""


class OutlierDetector:
    """Of one pool. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first = LatencySamples()
        self._each = LatencySamples()
        self._looked_at: dict[str, float] = {}

    def record(self, replica_id: str, tokens: TokenUsage, first: float, each: float | None) -> None:
        """Take in how long a first token took, and each of those after it, in seconds."""
        now, read = self._clock(), tokens.input - tokens.cached_input
        self._first.record(replica_id, read, first, now)
        if each is not None:
            self._each.record(replica_id, read, each, now)

    def slowness(self, replica: Replica, replicas: Collection[Replica]) -> float:
        """Put a replica out that is far slower than its peers, for the seconds returned, or take
        one back that was tried again; a trial is as short as one request."""
        now, replica_id = self._clock(), replica.record.replica_id
        is_trial = replica.slow_until > 0.0
        if now < replica.slow_until or not (is_trial or self._is_due(replica_id, now)):
            return 0.0
        is_slow = self._is_slow(replica_id, 1 if is_trial else SAMPLES_MIN)
        if is_slow or is_trial:
            self.forget(replica_id)
            replica.slow_until = 0.0
        if not is_slow or not may_eject(replica, replicas):
            return 0.0
        pause = replica.eject_slow(now)
        log.warning("replica_ejected_slow", replica_id=replica_id, seconds=round(pause))
        return pause

    def forget(self, replica_id: str) -> None:
        """A replica is gone, or begins anew."""
        self._first.forget(replica_id)
        self._each.forget(replica_id)
        self._looked_at.pop(replica_id, None)

    def _is_due(self, replica_id: str, now: float) -> bool:
        """Tell whether nobody looked at it for a while."""
        if now - self._looked_at.get(replica_id, float("-inf")) < LOOK_SECONDS:
            return False
        self._looked_at[replica_id] = now
        return True

    def _is_slow(self, replica_id: str, samples_min: int) -> bool:
        now = self._clock()
        measured = ((self._first, FIRST_SECONDS_MIN), (self._each, EACH_SECONDS_MIN))
        for times, seconds_min in measured:
            slower = _times_slower(times, replica_id, seconds_min, now)
            if len(slower) >= samples_min and median(slower) > TIMES_SLOWER:
                return True
        return False


def may_eject(replica: Replica, replicas: Collection[Replica]) -> bool:
    """Tell whether others are sound, and few enough of all are out for being slow."""
    others = [one for one in replicas if one.is_ready and one is not replica]
    out = sum(one.slow_until > 0.0 for one in others)
    has_sound = any(not one.on_probation and one.share > 0 for one in others)
    return has_sound and out < max(1, (len(others) + 1) // OUT_OF)


def _times_slower(
    times: LatencySamples, replica_id: str, seconds_min: float, now: float
) -> list[float]:
    """Return each time of a replica over the median of its peers."""
    slower = []
    for size in times.sizes_of(replica_id):
        peers = times.of_others(replica_id, size, now)
        if len(peers) >= SAMPLES_MIN:
            usual = max(seconds_min, quantile(peers, 0.5))
            slower += [seconds / usual for seconds in times.of(replica_id, size, now)]
    return slower
