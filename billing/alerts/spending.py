"""What organizations spend by the day, from the hour rollups: pace and the usual go by it."""

from datetime import date, datetime, timedelta

from django.db import connection
from django.db.models import Max

from billing.alerts.models import DaySpend
from billing.reading.days import midnight

REACH = timedelta(days=28)
"""How far back the usual is looked for."""
LATE = timedelta(days=2)
"""How long after a day its figures are looked at again: most late usage has arrived."""
CHARGED = "input_nanos + cached_input_nanos + output_nanos"
SUM_DAY = f"""
/* Sum a day's charges by organization, and those of its busiest hour. */
INSERT INTO alerts_day_spend AS known (organization_id, day, nanos, busiest_hour_nanos)
SELECT organization_id, %(day)s, sum(nanos)::bigint, max(nanos)::bigint
FROM (
    SELECT organization_id, bucket_at, sum({CHARGED}) AS nanos FROM following_hour_rollup
    WHERE accounted_on >= %(day)s AND bucket_at >= %(from)s AND bucket_at < %(to)s
    GROUP BY 1, 2
) AS hours
GROUP BY 1 HAVING sum(nanos) > 0 ORDER BY 1
ON CONFLICT (day, organization_id) DO UPDATE
SET nanos = excluded.nanos, busiest_hour_nanos = excluded.busiest_hour_nanos
WHERE (known.nanos, known.busiest_hour_nanos) <> (excluded.nanos, excluded.busiest_hour_nanos)
"""  # noqa: S608 -- constants of this module


def sum_days(*, now: datetime) -> None:
    """Bring the last days up to date, and those before that nobody summed while we were away."""
    today = now.date()
    last = DaySpend.objects.filter(day__lt=today).aggregate(last=Max("day"))["last"]
    first = max(today - REACH, min(last or today - REACH, today) - LATE)
    for days in range((today - first).days + 1):
        sum_day(today - timedelta(days=days))
    DaySpend.objects.filter(day__lt=today - 2 * REACH).delete()


def sum_day(day: date) -> None:
    """Sum one UTC day."""
    start = midnight(day)
    bounds = {"day": day, "from": start, "to": start + timedelta(days=1)}
    with connection.cursor() as cursor:
        cursor.execute(SUM_DAY, bounds)
