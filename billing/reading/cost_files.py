"""Costs by the day as files: CSV and JSON Lines, a day of the database's sums at a time.

`input_tokens` includes `cached_input_tokens`, here as in the API, the requests' files and the
console.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from billing.reading import pages, selectors
from billing.reading.buckets import WIDTH, floor
from billing.reading.exports import plain_dollars
from billing.reading.filters import EVERYTHING, UsageFilters
from billing.reading.sums import UsagePoint
from control.api.streaming import csv_bytes
from control.organizations.models import Organization

FIGURES = (
    "requests",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "input_nanos",
    "cached_input_nanos",
    "output_nanos",
    "charged_nanos",
    "charged_usd",
)


def cost_csv(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    group_by: Sequence[str] = (),
    filters: UsageFilters = EVERYTHING,
) -> Iterator[bytes]:
    """Yield what each day that touches [start, end) cost, by group, as CSV, its header first."""
    yield csv_bytes([("day", *group_by, *FIGURES)])
    for lines in _days(organization, start, end, group_by, filters):
        yield csv_bytes(line.values() for line in lines)


def cost_jsonl(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    group_by: Sequence[str] = (),
    filters: UsageFilters = EVERYTHING,
) -> Iterator[bytes]:
    """Yield what each day that touches [start, end) cost, by group, as JSON Lines."""
    for lines in _days(organization, start, end, group_by, filters):
        yield msgspec.json.Encoder().encode_lines(lines)


def _days(
    organization: Organization,
    start: datetime,
    end: datetime,
    group_by: Sequence[str],
    filters: UsageFilters,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of each day with usage; days without any cost one look into an index."""
    first, last = selectors.first_and_last_day(organization)
    day = floor(max(start, first) if first else end, "day")
    while day < min(end, last or end):
        points = selectors.usage_series(
            organization,
            day,
            day + WIDTH["day"],
            "day",
            group_by=pages.dimensions(group_by),
            filters=filters,
        )
        if points:
            yield [_line(point, labels) for labels, point in pages.label(points, group_by)]
        day += WIDTH["day"]


def _line(point: UsagePoint, labels: pages.Labels) -> dict[str, Any]:
    sums = point.sums
    figures = (
        sums.request_count,
        sums.input_tokens,
        sums.cached_input_tokens,
        sums.output_tokens,
        sums.input_nanos,
        sums.cached_input_nanos,
        sums.output_nanos,
        sums.charged_nanos,
        plain_dollars(sums.charged_nanos),
    )
    return {
        "day": f"{point.bucket_at:%Y-%m-%d}",
        **dict(labels),
        **dict(zip(FIGURES, figures, strict=True)),
    }
