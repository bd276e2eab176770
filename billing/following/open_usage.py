"""The usage of days that are not sealed, summed once for all checks that need it.

Day by day: a day's groups fit into memory where those of three months do not, days are shared among
workers, and no hour is of two days. What checks read is added up again, so that late usage and
corrections, which are few, may stand in rows of their own.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import connection

from billing.following.models import Cursor
from billing.following.rollups import NANOS, TOKENS
from billing.following.span import LATE, Span, last_day, open_span, usage_of_span
from billing.metering.partitions import first_id
from serving.contract.usage import BILLABLE

BILLABLE_SQL = ", ".join(f"'{outcome}'" for outcome in sorted(BILLABLE))
HALF = 500_000
MILLION = 1_000_000


def _due(tokens: str, price: str) -> str:
    """Return what tokens cost, half up; in 64 bits where that is enough."""
    return f"""CASE WHEN {tokens} <= safe_tokens
        THEN (({tokens})::bigint * {price} + {HALF}) / {MILLION}
        ELSE div(({tokens})::numeric * {price} + {HALF}, {MILLION})::bigint END"""


UNCACHED = "input_tokens - cached_input_tokens"
MISRATED = f"""CASE
    WHEN price_id IS NULL THEN {" + ".join(NANOS)} <> 0
    WHEN rating = 1 THEN {" + ".join(NANOS)} <> div(({UNCACHED})::numeric * input_price
        + cached_input_tokens::numeric * cached_input_price
        + output_tokens::numeric * output_price + {HALF}, {MILLION})
    ELSE input_nanos <> {_due(UNCACHED, "input_price")}
        OR cached_input_nanos <> {_due("cached_input_tokens", "cached_input_price")}
        OR output_nanos <> {_due("output_tokens", "output_price")}
END"""
MISJUDGED = f"is_waived <> (outcome NOT IN ({BILLABLE_SQL}) OR fault IS NOT NULL)"
FLAGS = {
    "is_waived": "is_waived",
    "is_rolled_up": "coalesce(ingested_xid < %(rollups)s::xid8, true)",
    "is_followed": "coalesce(ingested_xid < %(postings)s::xid8, true)",
}
"""By cursors given as parameters: a query for them would keep workers away."""
# As numbers: each boolean key would double the number of groups that the planner guesses, and with
# as many groups as events it lets no workers sum.
KEYS = (
    "organization_id", "caller_id", "supply_id", "accounted_on",
    "date_bin('1 hour', metering_received_at(event_id), '2000-01-01 00:00+00')", "outcome",
    *(f"({flag})::int" for flag in FLAGS.values()),
)  # fmt: skip


def _sums(source: str, sign: str) -> str:
    """Return the sums of a source's usage by all that any check tells apart."""
    *names, bucket, outcome, waived, rolled_up, followed = KEYS
    return f"""
        SELECT {", ".join(names)}, {bucket} AS bucket_at, {outcome}, {waived} = 1 AS is_waived,
            {rolled_up} = 1 AS is_rolled_up, {followed} = 1 AS is_followed,
            sum({sign}1)::int AS request_count,
            {", ".join(f"sum({sign}{name})::bigint AS {name}" for name in (*TOKENS, *NANOS))},
            count(*) FILTER (WHERE {MISRATED}) AS misrated_count,
            count(*) FILTER (WHERE {MISJUDGED}) AS misjudged_count
        FROM {source} LEFT JOIN (
            SELECT supply.id AS supply_id, price.id AS price_id, price.input_nanos AS input_price,
                price.cached_input_nanos AS cached_input_price, price.output_nanos AS output_price,
                9000000000000000000 / greatest(price.input_nanos, price.output_nanos, 1)
                    AS safe_tokens
            FROM metering_supply AS supply
            LEFT JOIN pricing_price AS price ON price.id = supply.price_id
        ) AS priced USING (supply_id)
        GROUP BY {", ".join(KEYS)}
    """  # noqa: S608 -- constants of this room


SHARED = """
SET LOCAL max_parallel_workers_per_gather = 2;
SET LOCAL enable_sort = off; SET LOCAL enable_indexscan = off
"""
"""One worker sums a day while others sum other days, and hashing what lies in a day's partition
beats reading it in any order."""
ALONE = """
SET LOCAL enable_sort TO DEFAULT; SET LOCAL enable_indexscan TO DEFAULT
"""
OF_A_DAY = """(
    SELECT * FROM metering_usage_event
    WHERE event_id >= %(day_{n})s::uuid AND event_id < %(day_{next})s::uuid
        AND accounted_on BETWEEN %(first)s AND %(last)s
) AS usage"""
OF_LATE = f"(SELECT * FROM metering_usage_event WHERE {LATE}) AS usage"  # noqa: S608
SUM = """
/* Sum the usage of open days that was received on them, day by day. */
CREATE TEMPORARY TABLE open_usage AS {days}
"""
ADD = f"""
/* Add the few others: received before, or corrected. Workers could not read those. */
INSERT INTO open_usage
{_sums(OF_LATE, "")} UNION ALL {_sums(usage_of_span("following_correction"), "sign * ")}
"""


def sum_open_usage() -> None:
    """Make the temporary table `open_usage`; it lasts until `drop_open_usage`."""
    days = open_span()
    begins = _begins(days)
    parameters: dict[str, Any] = {
        **days.parameters,
        **{f"day_{n}": event_id for n, event_id in enumerate(begins)},
        **{"rollups": None, "postings": None, **_cursors()},
    }
    parts = [_sums(OF_A_DAY.format(n=n, next=n + 1), "") for n in range(len(begins) - 1)]
    with connection.cursor() as cursor:
        cursor.execute(SHARED)
        cursor.execute(SUM.format(days=" UNION ALL ".join(parts)), parameters)
        cursor.execute(ALONE)
        cursor.execute(ADD, parameters)
        cursor.execute("ANALYZE open_usage")


def _begins(days: Span) -> Sequence[str]:
    """Return the ids that open days begin with, one after the other, and where the last one ends,
    which is beyond whatever there is."""
    newest = max(last_day() or days.first, days.first)
    count = (newest - days.first).days + 1
    starts = [first_id(days.first + timedelta(days=number)) for number in range(count)]
    return [*starts, str(days.parameters["high"])]


def _cursors() -> dict[str, str]:
    """Return how far each follower has come."""
    return {name: str(xid) for name, xid in Cursor.objects.values_list("name", "xid")}


def drop_open_usage() -> None:
    """Drop the temporary table."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS pg_temp.open_usage")
