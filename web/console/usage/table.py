"""The rows below the chart and of the CSV file, in the same order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from billing.reading.exports import plain_dollars
from billing.reading.sums import UsagePoint, UsageSums
from control.api.streaming import csv_bytes

ROWS_MAX = 60
"""Rows on one page of the table."""
CSV_MONEY = ("charged_usd", "charged_nanos")
CSV_HEADER: tuple[str, ...] = (
    "begins_at_utc",
    "group_id",
    "group_name",
    "requests",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    *CSV_MONEY,
)


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One bucket of one group."""

    bucket_at: datetime
    group_id: str
    group_name: str
    sums: UsageSums


def rows_of(points: Iterable[UsagePoint], names: Mapping[str, str]) -> list[UsageRow]:
    """Return the points as rows, latest first, within a bucket the most expensive group first."""
    rows = [row_of(point, names) for point in points if point.sums.request_count]
    rows.sort(key=lambda row: (-row.sums.charged_nanos, row.group_name))
    return sorted(rows, key=lambda row: row.bucket_at, reverse=True)


def row_of(point: UsagePoint, names: Mapping[str, str]) -> UsageRow:
    """Return a point with its group's name, or its id if there is no name."""
    group_id = point.group[0] if point.group else ""
    return UsageRow(point.bucket_at, group_id, names.get(group_id, group_id), point.sums)


def csv_text(rows: Sequence[UsageRow], *, with_money: bool = True) -> bytes:
    """Return the rows as CSV (RFC 4180), optionally without the money columns."""
    columns = len(CSV_HEADER) - (0 if with_money else len(CSV_MONEY))
    return csv_bytes(line[:columns] for line in (CSV_HEADER, *map(csv_row, rows)))


def csv_row(row: UsageRow) -> tuple[object, ...]:
    """Return a row's cells; input tokens include cached ones, as in the API."""
    sums = row.sums
    return (
        row.bucket_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        row.group_id,
        row.group_name,
        sums.request_count,
        sums.input_tokens,
        sums.cached_input_tokens,
        sums.output_tokens,
        plain_dollars(sums.charged_nanos),
        sums.charged_nanos,
    )
