"""What time it is: control's, wherever this host's clock is far from it.

Billing takes no word of a gateway whose clock is minutes off, and what a request is booked under is
the time in its id. So wall time is counted on by the monotonic clock, which no step of the host's
clock moves, and set by every answer of control: to the host's clock while the two agree.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import structlog

log = structlog.get_logger(__name__)

APART_SECONDS = 5.0
"""From here on control is believed. What it says of the time may be two seconds old."""
LATE_SECONDS = 1.0
"""By how much a `date` header lags in the mean: it is cut to seconds, and renewed each second."""


class Clock:
    """Seconds since 1970. `skew_seconds` is how far the host's clock was ahead of control's."""

    def __init__(
        self,
        *,
        host: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.skew_seconds = 0.0
        self._host = host
        self._monotonic = monotonic
        self._offset = host() - monotonic()

    @property
    def is_set_by_control(self) -> bool:
        """Whether the host's clock is too far off to be believed."""
        return abs(self.skew_seconds) > APART_SECONDS

    def time(self) -> float:
        """Return seconds since 1970."""
        return self._monotonic() + self._offset

    def now(self) -> datetime:
        """Return the same in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def is_yet_to_come(self, moment: datetime) -> bool:
        """Tell whether a moment was named before control set the clock back."""
        return moment.timestamp() - self.time() > APART_SECONDS

    def hear(self, date: str | None) -> None:
        """Take in the `date` header of an answer of control's."""
        told = _moment(date)
        if told is None:
            return
        host, was_set = self._host(), self.is_set_by_control
        self.skew_seconds = host - told
        if self.is_set_by_control != was_set:
            log.error("clock_skew", seconds=round(self.skew_seconds), is_set=not was_set)
        if not self.is_set_by_control:
            self._offset = host - self._monotonic()
        elif abs(self.time() - told) > APART_SECONDS:
            self._offset = told - self._monotonic()


def _moment(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date or "").timestamp() + LATE_SECONDS
    except ValueError:
        return None
