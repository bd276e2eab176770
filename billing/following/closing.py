"""Closing days: what comes later for a closed day is accounted on the first open one."""

from datetime import date, datetime, timedelta

from django.db import connection, transaction

from billing.following.span import first_day
from billing.metering.days import CLOSE, closed_through

GRACE = timedelta(hours=1)
"""How long after its end a day waits for journals of gateways that could not ship."""

# Whoever accounted on these days has committed: its transaction is below the snapshot's end.
CLOSE_DAYS = """
INSERT INTO metering_day (day, closed_at, closed_xid, archive_path)
SELECT day, %s, pg_snapshot_xmax(pg_current_snapshot()), ''
FROM generate_series(%s::date, %s::date, interval '1 day') AS day
"""


def close_days(*, now: datetime) -> date | None:
    """Close every day that has been over for GRACE; return the last closed day, None before any.

    Waits for the batches that are being ingested, and keeps others waiting meanwhile.
    """
    due = (now - GRACE).date() - timedelta(days=1)
    closed = closed_through()
    if closed is not None and closed >= due:
        return closed
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CLOSE)
        cursor.execute(CLOSE_DAYS, [now, _first_open(closed_through(), due), due])
    return closed_through()


def _first_open(closed: date | None, due: date) -> date:
    if closed is not None:
        return closed + timedelta(days=1)
    return min(first_day() or due, due)
