"""Days of the books: an event is accounted on its own day while that is open, else on the first
day that is. Whoever asks holds a share of the lock that closing a day takes whole."""

from collections.abc import Iterable
from datetime import date, timedelta

from django.db import connection

from billing.metering.models import Day

LOCK_ID = 0x6461_7973
"""The advisory lock ("days")."""
SHARE = f"SELECT pg_advisory_xact_lock_shared({LOCK_ID})"
CLOSE = f"SELECT pg_advisory_xact_lock({LOCK_ID})"
CLOSED_THROUGH = "SELECT max(day) FROM metering_day WHERE closed_at IS NOT NULL"


def share_days() -> date | None:
    """Keep days from closing until the transaction ends; return the last one that is closed."""
    with connection.cursor() as cursor:
        cursor.execute(SHARE)
    return closed_through()


def closed_through() -> date | None:
    """Return the last day that is closed; None before the first."""
    with connection.cursor() as cursor:
        cursor.execute(CLOSED_THROUGH)
        last: date | None = cursor.fetchone()[0]
    return last


def open_day(day: date, closed: date | None) -> date:
    """Return the day of the books for an event of `day` while days through `closed` are closed."""
    return day if closed is None or day > closed else closed + timedelta(days=1)


def dropped_days(days: Iterable[date]) -> set[date]:
    """Return those of the days whose events were archived and dropped."""
    gone = Day.objects.filter(day__in=set(days), dropped_at__isnull=False)
    return set(gone.values_list("day", flat=True))
