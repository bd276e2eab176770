"""Months of usage written by SQL, and all that followed from it by the product's own services.

Events, and the names they are interned by, are made in the database itself; budgets are charged,
rollups followed, days closed, posted and sealed by the services that do so in production.
"""

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta

import psycopg
from django.db import transaction

from billing.credit.selectors import key_at
from billing.credit.services.budgets import open_budgets
from billing.credit.services.leases import charge
from billing.following.closing import close_days
from billing.following.sealing import seal_days
from billing.metering.interning import CALLERS, ORIGINS, SUPPLIES
from tests.benchmarks.books.deeds.world import Caller, callers, make_world, price
from tests.fixtures.following import catch_up
from tests.fixtures.usage import METERS

DAYS_OPEN = 90
DAYS_SEALED = 90
SEALED_SHARE = 10
"""The sealed days before hold a tenth as many events."""
BURST = 10
"""Requests of a key come so many to a minute."""
BIG_SHARE = 10
"""One request in ten is of the first organization."""
KEYS_EACH = 4

ASKERS = """
CREATE TEMP TABLE asker AS SELECT place - 1 AS place, id, organization_id
FROM unnest(%s::int[], %s::text[]) WITH ORDINALITY AS one (id, organization_id, place)
"""
DAY = """
/* A day of events: who asks and in which minute by the burst, the rest by the event. */
INSERT INTO metering_usage_event (event_id, organization_id, digest, input_nanos,
    cached_input_nanos, output_nanos, caller_id, supply_id, origin_id, input_tokens,
    cached_input_tokens, output_tokens, reasoning_tokens, accounted_on, queue_seconds,
    ttft_seconds, total_seconds, rating, streamed, is_waived, outcome)
SELECT (lpad(to_hex(ms), 12, '0') || '7' || left(noise, 3) || 'a' || substr(noise, 4, 15))::uuid,
    organization_id, hashint8extended(n, 9), (tokens - cached) * %(input)s,
    cached * %(cached_input)s, output * %(output)s, id, %(supply)s, %(origin)s, tokens, cached,
    output, 0, %(day)s::date, 0.002, (luck %% 900) / 1000.0, (luck %% 5000) / 1000.0, 2, true,
    luck %% 100 = 0, CASE WHEN luck %% 100 = 0 THEN 'engine_failed' ELSE 'completed' END
FROM (
    SELECT n, md5(n || %(day)s::text) AS noise, luck, 20 + luck %% 2000 AS tokens,
        CASE luck %% 3 WHEN 0 THEN (20 + luck %% 2000) / 3 ELSE 0 END AS cached,
        1 + luck %% 400 AS output,
        %(from_ms)s + (who %% 1440) * 60000 + luck %% 60000 AS ms,
        CASE WHEN who %% %(big_share)s = 0 THEN who / 1440 %% %(big)s
            ELSE who / 1440 %% %(all)s END AS place
    FROM (
        SELECT n, abs(hashint8extended(n, %(seed)s)) AS luck,
            abs(hashint8extended(n / %(burst)s, %(seed)s + 1)) AS who
        FROM generate_series(1, %(count)s::bigint) AS n
    ) AS drawn
) AS one JOIN asker USING (place)
"""
CHARGED = """
/* What each key's requests of a month came to. */
SELECT caller.organization_id, caller.project_id, caller.key_id, month, nanos FROM (
    SELECT caller_id, date_trunc('month', accounted_on)::date AS month,
        sum(input_nanos + cached_input_nanos + output_nanos)::bigint AS nanos
    FROM metering_usage_event WHERE NOT is_waived GROUP BY 1, 2
) AS used JOIN metering_caller AS caller ON caller.id = used.caller_id
"""


def write_history(superuser_url: str, organizations: int, events: int, today: date) -> None:
    """Write days of usage up to and including `today`, the earlier half of them sealed."""
    first = today - timedelta(days=DAYS_OPEN + DAYS_SEALED - 1)
    make_world(organizations, KEYS_EACH, midnight(first))
    with _connect(superuser_url) as root:
        _write_days(root, first, DAYS_SEALED, events // SEALED_SHARE)
        _write_days(root, first + timedelta(days=DAYS_SEALED), DAYS_OPEN, events)
        root.execute("VACUUM ANALYZE")
        _charge(root.execute(CHARGED).fetchall())
    open_from = midnight(first + timedelta(days=DAYS_SEALED))
    close_days(now=open_from + timedelta(hours=2))
    now = midnight(today) + timedelta(days=1)
    catch_up(now)
    sealed = seal_days(now=now)
    assert len(sealed) == DAYS_SEALED, len(sealed)
    with _connect(superuser_url) as root:
        root.execute("VACUUM ANALYZE")


def midnight(day: date) -> datetime:
    """Return the moment a UTC day begins with."""
    return datetime.combine(day, time(), UTC)


def _connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor)


def _write_days(root: psycopg.Connection, first: date, days: int, events: int) -> None:
    numbered = CALLERS.intern(callers())
    root.execute("DROP TABLE IF EXISTS asker")
    ids = [numbered[caller].id for caller in callers()]
    root.execute(ASKERS, [ids, [caller.organization_id for caller in callers()]])
    of = price()
    supply = (of.variant.model_id, of.variant_id, of.id, "chat.completions", "default")
    origin = ("gw_1", "dep_1", "rep_1")
    same = {
        "supply": SUPPLIES.intern([supply])[supply].id,
        "origin": ORIGINS.intern([origin])[origin].id,
        **{name.removesuffix("_nanos"): nanos // 10**6 for name, nanos in vars(METERS).items()},
        "burst": BURST, "big_share": BIG_SHARE, "big": KEYS_EACH, "all": len(ids),
        "count": events // days,
    }  # fmt: skip
    for day in (first + timedelta(days=number) for number in range(days)):
        root.execute("SELECT metering_make_day(%s)", [day])
        from_ms = int(midnight(day).timestamp() * 1000)
        root.execute(DAY, {**same, "day": day, "from_ms": from_ms, "seed": day.toordinal()})


@transaction.atomic
def _charge(rows: list[tuple]) -> None:
    """Charge the budgets, as ingest would have."""
    keys: Counter = Counter()
    for *names, month, nanos in rows:
        for budget_id in Caller(*names).budget_ids:
            keys[key_at(budget_id, midnight(month))] += nanos
    budgets = open_budgets(keys)
    charge({budgets[key]: nanos for key, nanos in sorted(keys.items())}, {})
