"""Replicas that answer and are far slower than their peers, by first tokens or by each token.

Prompts are told apart by how many of their tokens had to be read: what a prefix cache holds makes
no replica look fast, and a cold cache makes none look slow.
"""

from collections.abc import Callable, Collection
from statistics import median

import structlog

from serving.engine.events import TokenUsage
from serving.pool.replica import Replica
from serving.pool.times import Times, quantile

log = structlog.get_logger(__name__)

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


class Outliers:
    """Of one pool. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first = Times()
        self._each = Times()
        self._looked_at: dict[str, float] = {}

    def note(self, replica_id: str, tokens: TokenUsage, first: float, each: float | None) -> None:
        """Take in how long a first token took, and each of those after it, in seconds."""
        now, read = self._clock(), tokens.input - tokens.cached_input
        self._first.note(replica_id, read, first, now)
        if each is not None:
            self._each.note(replica_id, read, each, now)

    def judge(self, replica: Replica, replicas: Collection[Replica]) -> float:
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
    has_sound = any(not one.is_on_trial and one.share > 0 for one in others)
    return has_sound and out < max(1, (len(others) + 1) // OUT_OF)


def _times_slower(times: Times, replica_id: str, seconds_min: float, now: float) -> list[float]:
    """Return each time of a replica over the median of its peers."""
    slower = []
    for size in times.sizes_of(replica_id):
        peers = times.of_others(replica_id, size, now)
        if len(peers) >= SAMPLES_MIN:
            usual = max(seconds_min, quantile(peers, 0.5))
            slower += [seconds / usual for seconds in times.of(replica_id, size, now)]
    return slower
