"""One instant on both of the gateway's clocks."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant in monotonic seconds, which measure time, and in wall time, which names it."""

    monotonic: float
    wall: datetime

    @property
    def clock_offset(self) -> float:
        """Seconds by which the wall clock is ahead of the monotonic clock. Both go on when a
        process ends, so it is the same for the next one unless the wall clock was set or the host
        restarted."""
        return self.wall.timestamp() - self.monotonic

    def on_monotonic(self, at: datetime) -> float:
        """Return a wall time in monotonic seconds, counted from this instant.

        What happens to the wall clock afterwards neither ends nor prolongs anything.
        """
        return self.monotonic + (at - self.wall).total_seconds()


def wall_clock() -> datetime:
    """Return now by the wall clock, in UTC."""
    return datetime.now(UTC)
