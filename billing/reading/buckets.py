"""Time as rollups hold it: UTC minutes, hours and days."""

from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

Bucket = Literal["minute", "hour", "day"]
Source = Literal["following_minute_rollup", "following_hour_rollup"]

WIDTH: dict[Bucket, timedelta] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
MINUTES: Source = "following_minute_rollup"
HOURS: Source = "following_hour_rollup"


class Span(NamedTuple):
    """The rollups of one table in [start, end)."""

    source: Source
    start: datetime
    end: datetime


def floor(moment: datetime, bucket: Bucket) -> datetime:
    """Return the beginning of the UTC bucket that `moment` lies in."""
    moment = moment.astimezone(UTC).replace(second=0, microsecond=0)
    if bucket != "minute":
        moment = moment.replace(minute=0)
    return moment.replace(hour=0) if bucket == "day" else moment


def ceiling(moment: datetime, bucket: Bucket) -> datetime:
    """Return the beginning of the first UTC bucket at or after `moment`."""
    return floor(moment + WIDTH[bucket] - timedelta.resolution, bucket)


def bucket_starts(start: datetime, end: datetime, bucket: Bucket) -> list[datetime]:
    """Return the UTC beginnings of all buckets that touch [start, end), empty ones too."""
    first = floor(start, bucket)
    count = max(-(-(end - first) // WIDTH[bucket]), 0)
    return [first + WIDTH[bucket] * step for step in range(count)]


def series_spans(
    start: datetime, end: datetime, bucket: Bucket, kept_from: datetime | None = None
) -> list[Span]:
    """Return the rollups that whole buckets of a series are summed from.

    Before `kept_from` no minutes are left: there a series by the minute has the sums of an hour in
    the hour's first minute, and nothing in the others.
    """
    start = floor(start, bucket)
    if bucket != "minute":
        return [Span(HOURS, start, end)]
    if kept_from is None or kept_from <= start:
        return [Span(MINUTES, start, end)]
    parted = min(kept_from, end)
    return [Span(HOURS, start, parted), Span(MINUTES, parted, end)]


def spans(start: datetime, end: datetime, kept_from: datetime | None = None) -> list[Span]:
    """Return the rollups to read for [start, end): whole hours, and minutes at the edges.

    An edge before `kept_from`, where no minutes are left, widens to its whole hour.
    """
    if kept_from is not None:
        start = floor(start, "hour") if start < kept_from else start
        end = ceiling(end, "hour") if end < kept_from else end
    first, last = ceiling(start, "hour"), floor(end, "hour")
    if first >= last:
        return [Span(MINUTES, start, end)]
    parts = [Span(MINUTES, start, first), Span(HOURS, first, last), Span(MINUTES, last, end)]
    return [part for part in parts if part.start < part.end]
