"""The one statement that sums rollups: of one organization, over time, by group.

Sums by the minute are kept for some days. Before them the spans of a question are of hours:
`buckets.spans` widens an edge there to its whole hour, and only there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from billing.following.latency import BUCKET_COUNT
from billing.reading.buckets import Bucket, Span
from billing.reading.filters import COLUMN, EVERYTHING, Dimension, UsageFilters
from billing.reading.sums import MEASURES, NO_TTFT, UsagePoint, UsageSums
from control.organizations.models import Organization

# Minutes and hours share their columns; a span without rows costs one look into its index.
SPAN = """
SELECT * FROM {source}
WHERE organization_id = %(organization_id)s
  AND bucket_at >= %(start_{n})s AND bucket_at < %(end_{n})s AND {condition}
"""
# Sums of rollups, taken apart by who called and what was sold. They are added up by ids first, and
# named when there are few.
SUMS = """
SELECT {keys}, {sums_of_parts}
FROM (
    SELECT {moment} AS bucket_at, {ids} {sums} FROM ({rows}) AS rollup GROUP BY 1 {places_of_ids}
) AS part {joins}
GROUP BY {places} ORDER BY {places}
"""
JOINS = {
    "caller": "JOIN metering_caller AS caller ON caller.id = part.caller_id",
    "supply": "JOIN metering_supply AS supply ON supply.id = part.supply_id",
}
MOMENT: dict[Bucket | None, str] = {
    None: "NULL::timestamptz",
    "minute": "bucket_at",
    "hour": "bucket_at",
    "day": "date_bin('1 day', bucket_at, '1970-01-01 00:00+00')",
}
"""What a row's bucket of the answer is; None sums over all time."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to sum, and how to take it apart. `ttft_since` counts the first tokens of the buckets
    from that moment on; counting costs as much as all the other sums together."""

    spans: Sequence[Span]
    bucket: Bucket | None = None
    group_by: Sequence[Dimension] = ()
    filters: UsageFilters = EVERYTHING
    ttft_since: datetime | None = None

    def statement(self) -> str:
        """Return the SQL, made of constants alone."""
        condition = self.filters.condition()
        columns = [COLUMN[dimension] for dimension in self.group_by]
        tables = sorted({column.split(".")[0] for column in columns})
        return SUMS.format(
            keys=", ".join(["part.bucket_at", *columns]),
            sums_of_parts=_summed("part."),
            moment=MOMENT[self.bucket],
            ids="".join(f"{table}_id, " for table in tables),
            sums=_summed("", _since if self.ttft_since else _never),
            rows="UNION ALL".join(
                SPAN.format(source=span.source, n=n, condition=condition)
                for n, span in enumerate(self.spans)
            ),
            places_of_ids="".join(f", {table}_id" for table in tables),
            joins=" ".join(JOINS[table] for table in tables),
            places=", ".join(str(place) for place in range(1, len(columns) + 2)),
        )

    def parameters(self, organization: Organization) -> dict[str, Any]:
        """Return the values of the statement's parameters."""
        moments = {
            name: moment
            for n, span in enumerate(self.spans)
            for name, moment in ((f"start_{n}", span.start), (f"end_{n}", span.end))
        }
        named = {"organization_id": organization.pk, "ttft_since": self.ttft_since}
        return {**named, **moments, **self.filters.parameters()}


def answer(organization: Organization, question: Question) -> Iterator[UsagePoint]:
    """Yield the sums in order of time, then group; only groups with usage are there."""
    with connection.cursor() as cursor:
        cursor.execute(question.statement(), question.parameters(organization))
        rows = cursor.fetchall()
    groups = len(question.group_by) + 1
    for row in rows:
        yield UsagePoint(row[0], row[1:groups], _sums(row[groups:]))


def _sums(values: Sequence[Any]) -> UsageSums:
    *measures, counts = values
    named = dict(zip(MEASURES, measures, strict=True))
    return UsageSums(**named, ttft_counts=NO_TTFT if counts is None else tuple(counts))


def _summed(source: str, counts: Callable[[str], str] | None = None) -> str:
    """Return the columns of sums; those of parts add arrays of counts up wherever there are any."""
    sums = [f"sum({source}{name})::bigint AS {name}" for name in MEASURES]
    return ", ".join([*sums, (counts or _whole)(f"{source}ttft_counts")])


def _whole(counts: str) -> str:
    places = range(1, BUCKET_COUNT + 1)
    sums = ", ".join(f"sum({counts}[{place}])::bigint" for place in places)
    return f"CASE WHEN bool_or({counts} IS NOT NULL) THEN ARRAY[{sums}] END AS ttft_counts"


def _since(counts: str) -> str:
    places = range(1, BUCKET_COUNT + 1)
    recent = "FILTER (WHERE rollup.bucket_at >= %(ttft_since)s)"
    sums = (f"coalesce(sum({counts}[{place}]) {recent}, 0)::bigint" for place in places)
    return f"ARRAY[{', '.join(sums)}] AS ttft_counts"


def _never(counts: str) -> str:
    return "NULL::bigint[] AS ttft_counts"
