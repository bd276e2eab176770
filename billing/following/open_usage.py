"""The usage of days that are not sealed, summed once for all checks that need it.

Day by day: a day's groups fit into memory where those of three months do not, days are shared among
workers, and no hour is of two days. What checks read is added up again, so that late usage and
corrections, which are few, may stand in rows of their own.

All of it is SELECTs: a transaction that writes, be it a temporary table, has an id, beyond which no
follower reads until it ends. What later statements need is handed to them as arrays.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.db import connection

from billing.following.checks import CHARGES, USAGE_CHECKS
from billing.following.models import Cursor
from billing.following.rollups import NANOS, TOKENS
from billing.following.span import LATE, Span, last_day, open_span, usage_of_span
from billing.ledger.integrity import SHOWN_MAX, Check, Finding
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
FEW = f"""
{_sums(OF_LATE, "")} UNION ALL {_sums(usage_of_span("following_correction"), "sign * ")}
"""
"""Received before the open days, or corrected. Workers could not read those."""
COLUMNS = {
    "organization_id": "text", "caller_id": "bigint", "supply_id": "bigint",
    "accounted_on": "date", "bucket_at": "timestamptz", "outcome": "text", "is_waived": "boolean",
    "is_rolled_up": "boolean", "is_followed": "boolean", "request_count": "int",
    **dict.fromkeys((*TOKENS, *NANOS), "bigint"), "misrated_count": "bigint",
    "misjudged_count": "bigint",
}  # fmt: skip
"""Of `open_usage`."""


def _arrays(columns: Iterable[str]) -> str:
    """Return the columns of all rows as PostgreSQL's texts of arrays, in one row."""
    arrays = (f"coalesce(array_agg({name})::text, '{{}}')" for name in columns)
    return f"ARRAY[{', '.join(arrays)}]"


def _found(place: int, check: Check) -> str:
    """Return how many counterexamples a check has, and the first of them."""
    return f"""
        SELECT {place}, count(*), (array_agg(row_to_json(found)::text))[1:{SHOWN_MAX}]
        FROM ({check.counterexamples}) AS found
    """  # noqa: S608 -- constants of these modules


SUM_FEW = f"""
/* Sum the few: usage received before the open days, or corrected. */
SELECT {_arrays(COLUMNS)} FROM ({FEW}) AS few
"""  # noqa: S608 -- constants of this module


def _check_usage(days: Sequence[str]) -> str:
    """Return the statement that checks the usage of open days and adds its charges up, in one pass
    over their sums, each day's by a query of its own."""
    few = ", ".join(f"%(few_{name})s::{kind}[]" for name, kind in COLUMNS.items())
    found = (_found(place, check) for place, check in enumerate(USAGE_CHECKS))
    return f"""
        /* Check the usage of open days, and add its charges up. */
        WITH on_time AS MATERIALIZED ({" UNION ALL ".join(days)}), open_usage AS NOT MATERIALIZED (
            SELECT * FROM on_time UNION ALL SELECT * FROM unnest({few})
        )
        {" UNION ALL ".join(found)} UNION ALL
        SELECT {len(USAGE_CHECKS)}, count(*), {_arrays(CHARGES)} FROM (
            SELECT organization_id, caller_id, (bucket_at AT TIME ZONE 'UTC')::date AS received_on,
                is_followed, sum({" + ".join(NANOS)})::bigint AS nanos
            FROM open_usage WHERE NOT is_waived GROUP BY 1, 2, 3, 4
        ) AS charged
        ORDER BY 1
    """  # noqa: S608 -- constants of these modules


def check_usage() -> tuple[list[Finding], dict[str, str]]:
    """Check the usage of open days; return what came of each of USAGE_CHECKS, and the charges by
    caller and day, as the arrays that `checks.OPEN_CHARGES` names."""
    days = open_span()
    begins = _begins(days)
    parameters: dict[str, Any] = {
        **days.parameters,
        **{f"day_{n}": event_id for n, event_id in enumerate(begins)},
        **{"rollups": None, "postings": None, **_cursors()},
    }
    parts = [_sums(OF_A_DAY.format(n=n, next=n + 1), "") for n in range(len(begins) - 1)]
    with connection.cursor() as cursor:
        cursor.execute(SUM_FEW, parameters)
        few = zip(COLUMNS, cursor.fetchone()[0], strict=True)
        parameters |= {f"few_{name}": values for name, values in few}
        cursor.execute(SHARED)
        cursor.execute(_check_usage(parts), parameters)
        *rows, (_, _, charges) = cursor.fetchall()
        cursor.execute(ALONE)
    findings = [
        Finding(check.sentence, count, tuple(_shown(row) for row in found or ()))
        for check, (_, count, found) in zip(USAGE_CHECKS, rows, strict=True)
    ]
    return findings, dict(zip(CHARGES, charges, strict=True))


def _shown(row: str) -> str:
    """Return a counterexample as `Finding` shows it."""
    return ", ".join(f"{name}={value}" for name, value in json.loads(row).items())


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
