"""Minute and hour sums of the events that a batch brought, added in one order."""

from django.db import connection

from billing.metering.latency import BUCKET_COUNT
from billing.metering.models import DIMENSIONS

OUTCOMES = (
    "completed",
    "client_cancelled",
    "engine_failed",
    "timed_out",
    "gateway_lost",
    "refused_by_engine",
)
SUMMED = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "charged_nanos",
    "waived_nanos",
)
COUNTS = ("request_count", *(f"{outcome}_count" for outcome in OUTCOMES))
MEASURES = {
    "request_count": "count(*)",
    **{f"{one}_count": f"count(*) FILTER (WHERE outcome = '{one}')" for one in OUTCOMES},
    **{one: f"sum({one})::bigint" for one in SUMMED},
    "ttft_counts": "ARRAY[{}]".format(
        ", ".join(f"count(*) FILTER (WHERE ttft_bucket = {i})" for i in range(BUCKET_COUNT))
    ),
}
ADD_ARRAYS = """(
    SELECT array_agg(a + b ORDER BY position)
    FROM unnest(rollup.ttft_counts, excluded.ttft_counts) WITH ORDINALITY AS one (a, b, position)
)"""


def _statement(table: str, unit: str) -> str:
    keys = {name: name for name in DIMENSIONS} | {
        "bucket_at": f"date_trunc('{unit}', received_at, 'UTC')"
    }
    values = keys | MEASURES
    added = [f"{name} = rollup.{name} + excluded.{name}" for name in (*COUNTS, *SUMMED)]
    added.append(f"ttft_counts = {ADD_ARRAYS}")
    positions = ", ".join(str(position) for position in range(1, len(keys) + 1))
    return f"""
        INSERT INTO {table} AS rollup ({", ".join(values)})
        SELECT {", ".join(values.values())} FROM usage_staging
        GROUP BY {positions} ORDER BY {positions}
        ON CONFLICT ({", ".join(keys)}) DO UPDATE SET {", ".join(added)}
    """  # noqa: S608 -- constants of this module


ADD_MINUTES = _statement("metering_minute_rollup", "minute")
ADD_HOURS = _statement("metering_hour_rollup", "hour")


def add_staged() -> None:
    """Add the staged events to their minutes and hours; the organizations' locks are held."""
    with connection.cursor() as cursor:
        cursor.execute(ADD_MINUTES)
        cursor.execute(ADD_HOURS)
