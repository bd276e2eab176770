"""When a deployment may start its next replica: doubling pauses, and a cap on the rate."""

from collections import deque

STARTS_MAX = 10
WINDOW_SECONDS = 600.0


class Restarts:
    """One deployment's record of starts and failures; all times are monotonic seconds."""

    def __init__(self, *, first_seconds: float, max_seconds: float) -> None:
        self.first_seconds = first_seconds
        self.max_seconds = max_seconds
        self.failures_in_a_row = 0
        self._failed_at = 0.0
        self._restarts: deque[float] = deque(maxlen=STARTS_MAX)

    def failed(self, now: float, *, was_steady: bool) -> None:
        """Note a failure; a replica that had been ready for long forgives those before it."""
        if was_steady:
            self.forgive()
        self.failures_in_a_row += 1
        self._failed_at = now

    def started(self, now: float) -> None:
        """Note a start; only those after a failure count towards the cap."""
        if self.failures_in_a_row:
            self._restarts.append(now)

    def forgive(self) -> None:
        """Forget the failures, as when the deployment was changed."""
        self.failures_in_a_row = 0
        self._restarts.clear()

    def pause_seconds(self, now: float) -> float:
        """Return how long to wait before the next start."""
        if not self.failures_in_a_row:
            return 0.0
        doubled = self.first_seconds * 2 ** min(self.failures_in_a_row - 1, 20)
        pause = self._failed_at + min(self.max_seconds, doubled) - now
        if len(self._restarts) == STARTS_MAX:
            pause = max(pause, self._restarts[0] + WINDOW_SECONDS - now)
        return max(0.0, pause)
