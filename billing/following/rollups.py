"""The follower `rollups`: sums by the minute and by the hour, from one pass over a page."""

from collections.abc import Iterable

from django.db import connection

from billing.following.cursor import Page
from billing.following.latency import BOUNDS_SECONDS, BUCKET_COUNT
from billing.following.models import DIMENSIONS
from serving.contract.usage import OUTCOMES

TOKENS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")
NANOS = ("input_nanos", "cached_input_nanos", "output_nanos")
COUNTS = ("request_count", *(f"{outcome}_count" for outcome in OUTCOMES))
SUMMED = (*COUNTS, *TOKENS, *NANOS, "waived_nanos")
KEYS = ("organization_id", "bucket_at", "caller_id", "supply_id", "accounted_on")
PAGE = "ingested_xid >= %s::xid8 AND ingested_xid < %s::xid8"

assert [name.removesuffix("_id") for name in KEYS[2:4]] == DIMENSIONS[2:4]  # noqa: S101


def follow_rollups(page: Page) -> None:
    """Add a page's usage to its minutes and hours."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL jit = off")
        cursor.execute("SET LOCAL work_mem = '64MB'")
        cursor.execute(ADD_PAGE, page.bounds)


def statement(condition: str) -> str:
    """Return the statement that adds the usage which `condition` picks."""
    return f"""
        /* Add usage to its minutes and hours: summed by outcome and TTFT first, then by bucket. */
        WITH part AS (
            SELECT organization_id, caller_id, supply_id, accounted_on, outcome, is_waived,
                date_bin('1 minute', metering_received_at(event_id), '2000-01-01 00:00+00')
                    AS bucket_at,
                width_bucket(ttft_seconds::float8, '{BOUNDS}'::float8[]) AS place,
                sum(sign) AS request_count,
                {_lines(f"sum(sign * {name})::bigint AS {name}" for name in (*TOKENS, *NANOS))}
            FROM following_usage WHERE {condition}
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
        ), minutes AS MATERIALIZED (
            SELECT {", ".join(KEYS)}, {_lines(_minute_sums())}
            FROM part GROUP BY {", ".join(KEYS)}
        ), hours AS (
            SELECT {_keys("date_bin('1 hour', bucket_at, '2000-01-01 00:00+00')")},
                {_lines(_hour_sums())}
            FROM minutes GROUP BY 1, 2, 3, 4, 5
        ), added AS ({_upsert("following_minute_rollup", "minutes")})
        {_upsert("following_hour_rollup", "hours")}
    """  # noqa: S608 -- constants of this module


def _minute_sums() -> list[str]:
    waived = " + ".join(NANOS)
    return [
        "sum(request_count)::int AS request_count",
        *(_sum("request_count", f"outcome = '{one}'", f"{one}_count", "int") for one in OUTCOMES),
        *(f"sum({name})::bigint AS {name}" for name in TOKENS),
        *(_sum(name, "NOT is_waived", name, "bigint") for name in NANOS),
        _sum(waived, "is_waived", "waived_nanos", "bigint"),
        _array(_sum("request_count", f"place = {i}", "", "int") for i in range(BUCKET_COUNT)),
    ]


def _hour_sums() -> list[str]:
    return [
        *(f"sum({name})::{_type(name)} AS {name}" for name in SUMMED),
        _array(f"sum(ttft_counts[{i + 1}])::int" for i in range(BUCKET_COUNT)),
    ]


def _upsert(table: str, source: str) -> str:
    columns = ", ".join((*KEYS, *SUMMED, "ttft_counts"))
    added = [f"{name} = rollup.{name} + excluded.{name}" for name in SUMMED]
    counts = (f"rollup.ttft_counts[{i}] + excluded.ttft_counts[{i}]" for i in _places())
    return f"""
        INSERT INTO {table} AS rollup ({columns})
        SELECT {columns} FROM {source} ORDER BY {", ".join(KEYS)}
        ON CONFLICT ({", ".join(KEYS)}) DO UPDATE SET {_lines(added)},
            ttft_counts = ARRAY[{", ".join(counts)}]
    """  # noqa: S608 -- constants of this module


def _sum(what: str, where: str, name: str, kind: str) -> str:
    named = f" AS {name}" if name else ""
    return f"coalesce(sum({what}) FILTER (WHERE {where}), 0)::{kind}{named}"


def _array(items: Iterable[str]) -> str:
    return f"ARRAY[{_lines(items)}] AS ttft_counts"


def _keys(bucket: str) -> str:
    return ", ".join(f"{bucket} AS bucket_at" if name == "bucket_at" else name for name in KEYS)


def _type(name: str) -> str:
    return "int" if name in COUNTS else "bigint"


def _places() -> range:
    return range(1, BUCKET_COUNT + 1)


def _lines(items: Iterable[str]) -> str:
    return ",\n".join(items)


BOUNDS = "{" + ",".join(map(str, BOUNDS_SECONDS[:-1])) + "}"  # beyond them all is the last
ADD_PAGE = statement(PAGE)
