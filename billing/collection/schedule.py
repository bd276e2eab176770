"""Which step of the schedule comes next, and on which day. Pure.

The days between two steps are kept whatever came between: who was paused, disputed or found late
is charged, told and limited in the same order and with the same notice as everybody else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta


@dataclass(frozen=True, slots=True)
class Planned:
    """A step, and the day on which it is taken."""

    kind: str
    days: int
    on: date

    @property
    def name(self) -> str:
        """How the log calls it."""
        return f"{self.kind}:{self.days}"

    def at(self, hour: int) -> datetime:
        """When it is taken, at the operator's hour (UTC)."""
        return moment(self.on, hour)


def moment(day: date, hour: int) -> datetime:
    """Return an hour of a day, in UTC."""
    return datetime.combine(day, time(hour), UTC)


def next_step(
    schedule: Iterable[tuple[int, str]],
    *,
    due_on: date,
    last_days: int | None,
    last_on: date | None,
    not_before: date | None,
) -> Planned | None:
    """Return the step after the one taken last; None after the last of all.

    Worked example: due on the 1st with steps on days 0, 3 and 10, of which day 3's was only taken
    on the 8th: day 10's follows on the 15th, seven days later, not on the 11th.
    """
    ahead = sorted((days, kind) for days, kind in schedule if last_days is None or days > last_days)
    if not ahead:
        return None
    days, kind = ahead[0]
    on = due_on + timedelta(days=days)
    if last_days is not None and last_on is not None:
        on = max(on, last_on + timedelta(days=days - last_days))
    return Planned(kind, days, max(on, not_before or on))
