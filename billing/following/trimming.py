"""Trimming: sums by the minute are deleted some days after, when their days are sealed.

Those by the hour stay for good. What is deleted is said before it is, so that readers never sum
half a day (`minutes_kept_from`). A page is one transaction, and a crash between two costs nothing.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db import connection

from billing.following.models import Retention
from billing.following.span import sealed_through

MINUTES = "minutes"
PAGE_ROWS = 10_000
"""Rows looked at, and deleted at most, in one transaction."""

# Rows are numbered as they were made, so the oldest come first. Of usage that came late there are
# old minutes among newer ones: they go when their neighbours do.
TRIM = """
/* Delete what is over of the next rows; say where they end and how many of them went. */
WITH page AS (
    SELECT id, bucket_at < %(before)s AND accounted_on <= %(sealed)s AS is_over
    FROM following_minute_rollup WHERE id > %(after)s ORDER BY id LIMIT %(rows)s
), gone AS (
    DELETE FROM following_minute_rollup AS rollup USING page
    WHERE rollup.id = page.id AND page.is_over RETURNING rollup.id
)
SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM gone)
"""
KEEP_FROM = """
/* Say from which day on all is kept: it never becomes an earlier one. */
INSERT INTO following_retention AS known (name, kept_from) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET kept_from = greatest(known.kept_from, excluded.kept_from)
RETURNING kept_from
"""


def minutes_kept_from() -> date | None:
    """Return the first day whose minutes are all there; None while none was ever deleted."""
    kept = Retention.objects.filter(name=MINUTES)
    return kept.values_list("kept_from", flat=True).first()


def trim_minutes(*, now: datetime, days: int) -> int:
    """Delete the minutes of sealed days that ended `days` days ago or more; count the rows."""
    sealed = sealed_through()
    if sealed is None:
        return 0
    due = min(now.astimezone(UTC).date() - timedelta(days=days), sealed + timedelta(days=1))
    return sum(_trimmed_pages(_keep_from(due), sealed))


def _keep_from(day: date) -> date:
    with connection.cursor() as cursor:
        cursor.execute(KEEP_FROM, [MINUTES, day])
        kept_from: date = cursor.fetchone()[0]
    return kept_from


def _trimmed_pages(kept_from: date, sealed: date) -> Iterator[int]:
    """Delete page after page, as far as there is something to delete; yield each one's count."""
    before, after = datetime.combine(kept_from, time(), UTC), 0
    while True:
        bounds: dict[str, Any] = {
            "before": before,
            "sealed": sealed,
            "after": after,
            "rows": PAGE_ROWS,
        }
        with connection.cursor() as cursor:
            cursor.execute(TRIM, bounds)
            last, count = cursor.fetchone()
        if not count:
            return
        yield count
        after = last
