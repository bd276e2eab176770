"""The usage of days that are not sealed, summed once for all checks that need it."""

from django.db import connection

from billing.following.rollups import NANOS, TOKENS
from billing.following.span import open_span, usage_of_span
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
    "is_rolled_up": "coalesce(ingested_xid < "
    "(SELECT xid FROM following_cursor WHERE name = 'rollups'), true)",
    "is_followed": "coalesce(ingested_xid < "
    "(SELECT xid FROM following_cursor WHERE name = 'postings'), true)",
}
# As numbers: each boolean key would double the number of groups that the planner guesses, and with
# as many groups as events it lets no workers sum.
KEYS = (
    "organization_id", "caller_id", "supply_id", "accounted_on",
    "date_bin('1 hour', uuid_extract_timestamp(event_id), '2000-01-01 00:00+00')", "outcome",
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
        FROM {usage_of_span(source)} LEFT JOIN (
            SELECT supply.id AS supply_id, price.id AS price_id, price.input_nanos AS input_price,
                price.cached_input_nanos AS cached_input_price, price.output_nanos AS output_price,
                9000000000000000000 / greatest(price.input_nanos, price.output_nanos, 1)
                    AS safe_tokens
            FROM metering_supply AS supply
            LEFT JOIN prices_price AS price ON price.id = supply.price_id
        ) AS priced USING (supply_id)
        GROUP BY {", ".join(KEYS)}
    """  # noqa: S608 -- constants of this room


SHARED = """
SET LOCAL max_parallel_workers_per_gather = 2;
SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0.01;
SET LOCAL enable_sort = off
"""
"""Workers are worth their start for whoever reads all usage of open days, and hashing beats sorting
even where it spills to disk."""
ALONE = """
SET LOCAL parallel_setup_cost TO DEFAULT; SET LOCAL parallel_tuple_cost TO DEFAULT;
SET LOCAL enable_sort TO DEFAULT
"""
SUM = f"""
/* Sum the usage of open days. The few corrections are apart: events alone are read by workers. */
CREATE TEMPORARY TABLE open_usage AS
{_sums("metering_usage_event", "")} UNION ALL {_sums("following_correction", "sign * ")}
"""


def sum_open_usage() -> None:
    """Make the temporary table `open_usage`; it lasts until `drop_open_usage`."""
    with connection.cursor() as cursor:
        cursor.execute(SHARED)
        cursor.execute(SUM, open_span().parameters)
        cursor.execute(ALONE)
        cursor.execute("ANALYZE open_usage")


def drop_open_usage() -> None:
    """Drop the temporary table."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS pg_temp.open_usage")
