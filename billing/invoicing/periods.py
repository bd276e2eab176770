"""Months of the books: half-open, UTC, named such as `2026-11`."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from control.errors import InvalidValue

_NAME = re.compile(r"(\d{4})-(0[1-9]|1[0-2])", re.ASCII)
FIRST_YEAR, LAST_YEAR = 2000, 9998


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """One month, from `starts_on` up to but without `ends_on`."""

    starts_on: date

    @property
    def ends_on(self) -> date:
        """The first day that is not in it."""
        return (self.starts_on + timedelta(days=31)).replace(day=1)

    @property
    def last_day(self) -> date:
        """Its last day."""
        return self.ends_on - timedelta(days=1)

    @property
    def starts_at(self) -> datetime:
        """Its first moment."""
        return datetime.combine(self.starts_on, time(), UTC)

    @property
    def ends_at(self) -> datetime:
        """The first moment after it."""
        return datetime.combine(self.ends_on, time(), UTC)

    @property
    def days(self) -> int:
        """How many days it has."""
        return (self.ends_on - self.starts_on).days

    @property
    def before(self) -> "Period":
        """The month before."""
        return period_of(self.starts_on - timedelta(days=1))

    @property
    def after(self) -> "Period":
        """The month after."""
        return Period(self.ends_on)

    @property
    def words(self) -> str:
        """The month for people, such as `November 2026`."""
        return f"{self.starts_on:%B %Y}"

    def __str__(self) -> str:
        return f"{self.starts_on:%Y-%m}"


def parse_period(text: str) -> Period:
    """Return the month that a text names. Raises InvalidValue for anything but such as
    `2026-11`."""
    match = _NAME.fullmatch(text.strip())
    if match is None or not FIRST_YEAR <= int(match[1]) <= LAST_YEAR:
        raise InvalidValue(
            f"{text[:20]!r} is not a month; enter one such as 2026-11.", param="period"
        )
    return Period(date(int(match[1]), int(match[2]), 1))


def period_of(day: date) -> Period:
    """Return the month that a day lies in."""
    return Period(day.replace(day=1))


def last_period(now: datetime) -> Period:
    """Return the last month that is over at a moment."""
    return period_of(now.astimezone(UTC).date()).before
