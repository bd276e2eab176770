"""Sealing days: what each organization's usage of a day came to, with a digest of every row.

A seal's digest covers the organization's seal before, so that no row of the past changes unseen.
Rows are read before anything is locked: a closed day that was followed never changes again.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import structlog
from django.db import connection, transaction

from billing.following.follow import FOLLOWERS
from billing.following.models import Cursor
from billing.following.posting import has_unposted, post_through
from billing.following.span import span, usage_of_span
from billing.metering.models import Day
from control.alarms.count import OPERATOR, raise_alarms
from control.db.privileges import UNLIMITED_TRANSACTION
from control.feed.database_identity import current_database_id

TOKENS = ("input_tokens", "cached_input_tokens", "output_tokens")
NANOS = ("input_nanos", "cached_input_nanos", "output_nanos")
SUMS = ("event_count", *TOKENS, *NANOS, "waived_nanos")
RECORD = (
    "kind", "event_id", "organization_id", "project_id", "key_id", "model_id", "variant_id",
    "price_id", "endpoint", "tier", "gateway_id", "deployment_id", "replica_id", "input_tokens",
    "cached_input_tokens", "output_tokens", "reasoning_tokens", "input_nanos",
    "cached_input_nanos", "output_nanos", "queue_seconds", "ttft_seconds", "total_seconds",
    "rating", "streamed", "is_waived", "outcome", "fault", "client_request_id", "lease_ids",
    "lease_nanos", "digest",
)  # fmt: skip
"""What is digested of a row, in this order."""
MINUTE = "date_bin('1 minute', metering_received_at(event_id), '2000-01-01 00:00+00')"
ROW_DIGEST = f"sha256(convert_to(ROW({', '.join(RECORD)})::text, 'UTF8'))"

SEALED_SUMS = f"""
    sum(sign) AS event_count,
    {", ".join(f"sum(sign * {name}) AS {name}" for name in TOKENS)},
    {
    ", ".join(
        f"coalesce(sum(sign * {name}) FILTER (WHERE NOT is_waived), 0) AS {name}" for name in NANOS
    )
},
    coalesce(sum(sign * ({" + ".join(NANOS)})) FILTER (WHERE is_waived), 0) AS waived_nanos
"""


def digests(source: str) -> str:
    """Return a query of each organization's digest over the records of a FROM item.

    Row by row, then by the minute, then all: no organization makes a string beyond all bounds.
    `filed` folds the rows of a file alike.
    """
    return f"""
        SELECT organization_id, sha256(string_agg(digest, ''::bytea ORDER BY minute)) AS rows_digest
        FROM (
            SELECT organization_id, minute,
                sha256(string_agg(digest, ''::bytea ORDER BY event_id, kind)) AS digest
            FROM (
                SELECT organization_id, event_id, kind, {MINUTE} AS minute, {ROW_DIGEST} AS digest
                FROM {source}
            ) AS one GROUP BY organization_id, minute
        ) AS minutes GROUP BY organization_id
    """  # noqa: S608 -- constants of this room


DAY_SUMS = f"""
/* What a day came to by its events and by its rollups, and the digest of its rows. */
WITH sums AS (
    SELECT organization_id, {SEALED_SUMS} FROM {usage_of_span("following_usage")} GROUP BY 1
), rolled AS (
    SELECT organization_id, sum(request_count) AS event_count,
        {", ".join(f"sum({name}) AS {name}" for name in SUMS[1:])}
    FROM following_hour_rollup WHERE accounted_on = %(first)s GROUP BY 1
), hashed AS ({digests(usage_of_span("following_record"))})
SELECT organization_id, {", ".join(f"sums.{name}::bigint" for name in SUMS)}, rows_digest,
    ({", ".join(f"sums.{name}" for name in SUMS)}) IS NOT DISTINCT FROM
    ({", ".join(f"rolled.{name}" for name in SUMS)}) AS agrees
FROM sums FULL JOIN hashed USING (organization_id) FULL JOIN rolled USING (organization_id)
"""  # noqa: S608 -- constants of this room

CHAINED = f"""sha256(coalesce({{before}}, ''::bytea) || convert_to(concat_ws(' ', organization_id,
    to_char(day_id, 'YYYY-MM-DD'), {", ".join(SUMS)}), 'UTF8') || rows_digest)"""
"""A seal's digest, with the one before it."""

SEAL = f"""
/* Seal a day, each organization's after its seal before. */
INSERT INTO following_seal (day_id, organization_id, {", ".join(SUMS)}, rows_digest, digest)
SELECT day_id, organization_id, {", ".join(SUMS)}, rows_digest,
    {CHAINED.format(before="before.one")}
FROM unnest(%s::date[], %s::text[], {", ".join(["%s::bigint[]"] * len(SUMS))}, %s::bytea[])
    AS made (day_id, organization_id, {", ".join(SUMS)}, rows_digest)
LEFT JOIN LATERAL (
    SELECT digest AS one FROM following_seal AS seal
    WHERE seal.organization_id = made.organization_id AND seal.day_id < made.day_id
    ORDER BY seal.day_id DESC LIMIT 1
) AS before ON true
"""  # noqa: S608 -- constants of this room

PATIENTLY = f"""
{UNLIMITED_TRANSACTION}; SET LOCAL statement_timeout = '15min';
SET LOCAL work_mem = '256MB'; SET LOCAL jit = off
"""
"""For a statement that reads a whole day and locks nothing."""

logger = structlog.get_logger(__name__)


def seal_days(*, now: datetime) -> list[date]:
    """Seal the closed days that every follower has passed, in order; return them.

    A day whose rollups do not agree with its events is not sealed, nor one after it: an alarm.
    """
    sealed = []
    for day in Day.objects.filter(closed_at__isnull=False, sealed_at__isnull=True).order_by("day"):
        if not is_followed(day):
            break
        post_through(day.day, now=now)
        if not seal_day(day.day, now=now):
            raise_alarms({(OPERATOR, "day_disagrees"): 1}, now=now)
            break
        sealed.append(day.day)
    return sealed


def is_followed(day: Day) -> bool:
    """Tell whether every follower of this database has passed the close of a day."""
    cursors = list(Cursor.objects.filter(name__in=FOLLOWERS, lineage=current_database_id()))
    assert day.closed_xid is not None, day  # noqa: S101 -- it is closed
    closed_xid = int(day.closed_xid)
    return len(cursors) == len(FOLLOWERS) and all(int(one.xid) >= closed_xid for one in cursors)


def seal_day(day: date, *, now: datetime) -> bool:
    """Seal one day that was followed and posted; return whether it is sealed.

    A sealed day stays as it is.
    """
    rows = _sums(day)
    wrong = [row for row in rows if not row[-1]]
    if wrong:
        logger.error("day_disagrees", day=str(day), organization_ids=[row[0] for row in wrong[:10]])
        return False
    with transaction.atomic():
        row = Day.objects.select_for_update().get(day=day)
        if row.sealed_at is not None or has_unposted(day):
            return row.sealed_at is not None
        _insert(day, [row[:-1] for row in rows])
        row.sealed_at, row.event_count = now, sum(one[1] for one in rows)
        row.save(update_fields=["sealed_at", "event_count"])
    return True


@transaction.atomic
def _sums(day: date) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(PATIENTLY)
        cursor.execute(DAY_SUMS, span(day, day).parameters)
        return list(cursor.fetchall())


def _insert(day: date, rows: Sequence[tuple[Any, ...]]) -> None:
    if not rows:
        return
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[-1] = [bytes(digest) for digest in columns[-1]]
    with connection.cursor() as cursor:
        cursor.execute(SEAL, [[day] * len(rows), *columns])
