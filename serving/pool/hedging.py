"""When a request of the tier `priority` is sent to a second replica too: when its first token is
later than nearly all of such first tokens were elsewhere."""

from collections.abc import Callable

from serving.pool.outlier_detection import LatencySamples, quantile
from serving.pool.retry_budget import RetryBudget

SHARE = 0.05
"""Of the pool's requests of the tier, at most, at any time counted from any beginning."""
USUAL = 0.95
"""The quantile of the other replicas' times after which a first token is late."""
SECONDS_MIN = 0.1
"""However fast the others are."""
SAMPLES_MIN = 20
"""Of others, by which it is known what is usual."""
KNOWN_SECONDS = 1.0
"""How long a quantile is believed before it is worked out again."""


class HedgePolicy:
    """Of one pool. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.budget = RetryBudget(SHARE, saved=0.0)
        self.times = LatencySamples()
        """To the first token, by how long prompts are thought to be."""
        self._clock = clock
        self._known: dict[tuple[str, int], tuple[float, float]] = {}

    def seconds_for(self, replica_id: str, tokens: int) -> float | None:
        """Return after how long a first token from a replica is late; None where too little was
        seen of others to tell."""
        now, key = self._clock(), (replica_id, tokens.bit_length())
        at, seconds = self._known.get(key, (float("-inf"), 0.0))
        if now - at > KNOWN_SECONDS:
            others = self.times.of_others(*key, now)
            if len(others) < SAMPLES_MIN:
                return None
            seconds = max(SECONDS_MIN, quantile(others, USUAL))
            self._known[key] = now, seconds
        return seconds

    def forget(self, replica_id: str) -> None:
        """A replica is gone."""
        self.times.forget(replica_id)
        self._known = {key: known for key, known in self._known.items() if key[0] != replica_id}
