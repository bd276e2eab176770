"""The time: control's, wherever this host's clock is far from it.

Billing takes no word of a gateway whose clock is minutes off, and what a request is booked under
is the time in its id. So wall time is counted on by the monotonic clock, which no step of the
host's clock moves, and led towards control's: to the host's clock while the two agree.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import copysign
from statistics import median

import structlog

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClockReading:
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

        Later changes of the wall clock neither end nor prolong anything.
        """
        return self.monotonic + (at - self.wall).total_seconds()


def wall_clock() -> datetime:
    """Return now by the wall clock, in UTC."""
    return datetime.now(UTC)


APART_SECONDS = 5.0
"""From here on control is believed. Its time may be two seconds old."""
AGREED_SECONDS = 3.0
"""Up to here the host's clock is believed again; less than `APART_SECONDS`, so that a host just
there does not go back and forth."""
LATE_SECONDS = 1.0
"""By how much a `date` header lags in the mean: it is cut to seconds, and renewed each second."""
SHORT_SECONDS = 2.0
"""A longer call tells nothing: its `date` was written at any moment of it. A long poll writes
it when it begins."""
HEARD_MAX = 9
"""The median of so many short calls counts: one odd answer moves nothing."""
SLEW = 0.5
"""By how much of its pace time is slowed or hurried while it is led to where it should be."""
FUTURE_SECONDS = 240.0
"""From here on time is set back at once: billing refuses whatever is five minutes ahead."""


class GatewayClock:
    """Seconds since 1970. `skew_seconds` is how far the host's clock was ahead of control's.

    Control's first word sets it. Afterwards it never goes backwards: what it is ahead it loses by
    going slower; what it lacks it makes up by going faster, or by a jump from `APART_SECONDS` on.
    """

    def __init__(
        self,
        *,
        host: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.skew_seconds = 0.0
        self.is_set_by_control = False
        """Whether the host's clock is too far off to be believed."""
        self._host = host
        self._monotonic = monotonic
        self._heard: deque[float] = deque(maxlen=HEARD_MAX)
        """The offset from monotonic seconds by each of control's last short answers."""
        self._from = self._goal = host() - monotonic()
        self._since = monotonic()

    def time(self) -> float:
        """Return seconds since 1970."""
        now = self._monotonic()
        return now + self._offset(now)

    def now(self) -> datetime:
        """Return the same in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def is_in_future(self, moment: datetime) -> bool:
        """Tell whether a moment was named before control set the clock back."""
        return moment.timestamp() - self.time() > APART_SECONDS

    def observe(self, date: str | None, seconds: float) -> None:
        """Take in the `date` header of an answer of control's to a call that took so long."""
        told = _moment(date)
        if told is None or seconds > SHORT_SECONDS:
            return
        now, is_first = self._monotonic(), not self._heard
        self._heard.append(told + LATE_SECONDS + seconds / 2 - now)
        offset, host_offset = median(self._heard), self._host() - now
        self.skew_seconds = host_offset - offset
        self._check_host()
        self._lead(offset if self.is_set_by_control else host_offset, now, at_once=is_first)

    def _check_host(self) -> None:
        was_set, apart = self.is_set_by_control, abs(self.skew_seconds)
        self.is_set_by_control = apart > (AGREED_SECONDS if was_set else APART_SECONDS)
        if self.is_set_by_control != was_set:
            log.error("clock_skew", seconds=round(self.skew_seconds), is_set=not was_set)

    def _lead(self, goal: float, now: float, *, at_once: bool) -> None:
        offset = self._offset(now)
        is_far = goal - offset > APART_SECONDS or offset - goal > FUTURE_SECONDS
        self._from = goal if at_once or is_far else offset
        self._goal, self._since = goal, now

    def _offset(self, now: float) -> float:
        """Return what is to be added to monotonic seconds."""
        way, made = self._goal - self._from, (now - self._since) * SLEW
        return self._goal if abs(way) <= made else self._from + copysign(made, way)


def _moment(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
