"""Usage by the days it is accounted on, in conditions that read few partitions.

Usage lies in the partition of the day it was received on. What is accounted on a later day was
ingested after the day before that one was closed: `since` is the transaction of that close.
"""

from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from django.db import connection

from billing.metering.models import Day
from billing.metering.partitions import first_id

LAST_DAY = date(9999, 12, 30)
ON_TIME = """
    event_id >= %(low)s::uuid AND event_id < %(high)s::uuid
    AND accounted_on BETWEEN %(first)s AND %(last)s
"""
LATE = """
    event_id < %(low)s::uuid AND accounted_on BETWEEN %(first)s AND %(last)s
    AND (ingested_xid >= %(since)s::xid8 OR ingested_xid IS NULL)
"""
FIRST_DAY = """
/* The day of the oldest event. */
SELECT (metering_received_at(event_id) AT TIME ZONE 'UTC')::date FROM metering_usage_event
ORDER BY event_id LIMIT 1
"""
NEWEST_DAY = """
/* The day of the newest event. */
SELECT (metering_received_at(event_id) AT TIME ZONE 'UTC')::date FROM metering_usage_event
ORDER BY event_id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Span:
    """Days of the books, both included, and the transaction that closed the day before."""

    first: date
    last: date
    since: str

    @property
    def parameters(self) -> dict[str, Any]:
        """What the conditions of this module name.

        Bounds are plain ids: a function of ours would keep a query from being shared by workers.
        """
        bounds = {"low": first_id(self.first), "high": first_id(self.last + timedelta(days=1))}
        return asdict(self) | bounds


def usage_of_span(view: str) -> str:
    """Return the rows of a view of usage that are accounted on a span's days, as a FROM item."""
    return f"""(
        SELECT * FROM {view} WHERE {ON_TIME} UNION ALL SELECT * FROM {view} WHERE {LATE}
    ) AS usage"""  # noqa: S608 -- constants of this room


def span(first: date, last: date) -> Span:
    """Return days as a span."""
    before = Day.objects.filter(day=first - timedelta(days=1)).values_list("closed_xid", flat=True)
    return Span(first, last, before.first() or "0")


def open_span() -> Span:
    """Return the days that are not sealed: all from the first, or after the last sealed one."""
    sealed = sealed_through()
    first = first_day() if sealed is None else sealed + timedelta(days=1)
    return span(first or LAST_DAY, LAST_DAY)


def sealed_through() -> date | None:
    """Return the last day that is sealed; days are sealed in order."""
    sealed = Day.objects.filter(sealed_at__isnull=False).order_by("-day")
    return sealed.values_list("day", flat=True).first()


def first_day() -> date | None:
    """Return the day of the oldest event; None where there is none."""
    return _day(FIRST_DAY)


def last_day() -> date | None:
    """Return the day of the newest event; None where there is none."""
    return _day(NEWEST_DAY)


def _day(question: str) -> date | None:
    with connection.cursor() as cursor:
        cursor.execute(question)
        row = cursor.fetchone()
    return row[0] if row else None
