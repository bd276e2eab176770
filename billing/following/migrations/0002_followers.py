"""Followers begin: usage from before them counts as followed, so its sums are made here. The ledger
holds that usage already. The statement stands here, as it was then: what the followers do today may
change, and this may not."""

import pathlib

import django.contrib.postgres.indexes
from django.db import migrations

SQL = pathlib.Path(__file__).parent.parent / "sql"
CURSORS = """
INSERT INTO following_cursor (name, lineage, xid, followed_at)
SELECT name, '', '0', now() FROM unnest(ARRAY['rollups', 'postings', 'keys']) AS name
"""

BOUNDS = "{0.002,0.003,0.005,0.007,0.01,0.015,0.02,0.03,0.05,0.07,0.1,0.15,0.2,0.3,0.5,0.7,1.0,1.5,2.0,3.0,5.0,7.0,10.0,20.0,60.0}"
OUTCOMES = ("completed", "client_cancelled", "engine_failed", "timed_out", "gateway_lost", "refused_by_engine")
COUNTS = ("request_count", *(f"{outcome}_count" for outcome in OUTCOMES))
SUMS = (
    "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens",
    "input_nanos", "cached_input_nanos", "output_nanos", "waived_nanos",
)
KEYS = "organization_id, bucket_at, caller_id, supply_id, accounted_on"
COLUMNS = ", ".join((KEYS, *COUNTS, *SUMS, "ttft_counts"))


def counted(condition):
    return f"coalesce(sum(request_count) FILTER (WHERE {condition}), 0)::int"


def ended(outcome):
    return counted(f"outcome = '{outcome}'") + f" AS {outcome}_count"


def charged(meter):
    return f"coalesce(sum({meter}) FILTER (WHERE NOT is_waived), 0)::bigint AS {meter}"


FILL = f"""
/* Sum usage from before the followers by the minute, and the minutes by the hour. */
WITH part AS (
    SELECT organization_id, caller_id, supply_id, accounted_on, outcome, is_waived,
        date_bin('1 minute', uuid_extract_timestamp(event_id), '2000-01-01 00:00+00') AS bucket_at,
        width_bucket(ttft_seconds::float8, '{BOUNDS}'::float8[]) AS place,
        sum(sign) AS request_count,
        {", ".join(f"sum(sign * {name})::bigint AS {name}" for name in SUMS[:-1])}
    FROM following_usage WHERE ingested_xid IS NULL
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
), minutes AS MATERIALIZED (
    SELECT {KEYS}, sum(request_count)::int AS request_count,
        {", ".join(map(ended, OUTCOMES))},
        {", ".join(f"sum({name})::bigint AS {name}" for name in SUMS[:4])},
        {", ".join(map(charged, SUMS[4:-1]))},
        coalesce(sum(input_nanos + cached_input_nanos + output_nanos) FILTER (WHERE is_waived), 0)::bigint
            AS waived_nanos,
        ARRAY[{", ".join(counted(f"place = {place}") for place in range(26))}] AS ttft_counts
    FROM part GROUP BY {KEYS}
), added AS (
    INSERT INTO following_minute_rollup ({COLUMNS}) SELECT {COLUMNS} FROM minutes ORDER BY {KEYS}
)
INSERT INTO following_hour_rollup ({COLUMNS})
SELECT organization_id, date_bin('1 hour', bucket_at, '2000-01-01 00:00+00'), caller_id, supply_id, accounted_on,
    {", ".join(f"sum({name})::int" for name in COUNTS)},
    {", ".join(f"sum({name})::bigint" for name in SUMS)},
    ARRAY[{", ".join(f"sum(ttft_counts[{place}])::int" for place in range(1, 27))}]
FROM minutes GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
"""


class Migration(migrations.Migration):
    dependencies = [
        ("following", "0001_initial"),
        ("credit", "0002_authorization"),
        ("keys", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL((SQL / "usage.sql").read_text(), "DROP VIEW following_usage; DROP VIEW following_correction"),
        migrations.RunSQL((SQL / "record.sql").read_text(), "DROP VIEW following_record"),
        migrations.RunSQL(CURSORS, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name='hourrollup',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['accounted_on'], name='hour_rollup_by_day'),
        ),
        migrations.AddIndex(
            model_name='minuterollup',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['accounted_on'], name='minute_rollup_by_day'),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
