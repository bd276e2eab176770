"""A month of hour rollups and its postings, written by SQL as if its events had been followed; its
close; and the documents that came of it. Runs in a worker."""

import time
from datetime import date, timedelta

import psycopg
from django.db import connection

from billing.following.closing import close_days
from billing.following.follow import follow_all
from billing.invoicing.closes import uninvoiced
from billing.invoicing.integrity import CHECKS
from billing.invoicing.models import Invoice, InvoiceLine
from billing.invoicing.periods import Period
from billing.invoicing.services.closing import close_month
from billing.invoicing.typeset.pdf import invoice_pdf
from billing.ledger.integrity import run
from billing.metering.interning import CALLERS, SUPPLIES
from control.permissions import Actor
from control.pricing.models import Price
from tests.benchmarks.books.deeds.history import midnight
from tests.benchmarks.books.deeds.world import callers, make_world
from tests.fixtures.usage import make_price

KEYS_EACH = 4
VARIANTS = 6
HOURS_SHARE = 10
"""A key uses a variant in one hour of ten."""
FAILED_SHARE = 20
"""One hour of twenty has requests that nobody pays for."""

ROLLUPS = """
/* Hours of usage: which key used which variant when, and how much, is drawn by hashing. */
INSERT INTO following_hour_rollup (organization_id, bucket_at, caller_id, supply_id, accounted_on,
    request_count, completed_count, client_cancelled_count, engine_failed_count, timed_out_count,
    gateway_lost_count, refused_by_engine_count, hedged_count, input_tokens, cached_input_tokens,
    output_tokens, reasoning_tokens, input_nanos, cached_input_nanos, output_nanos, waived_nanos,
    ttft_counts)
SELECT caller.organization_id, hour, caller.id, supply, hour::date, %(each)s + failed, %(each)s, 0,
    failed, 0, 0, 0, 0, %(each)s * tokens, %(each)s * (tokens / 3), %(each)s * output, 0,
    %(each)s * (tokens - tokens / 3) * 150, %(each)s * (tokens / 3) * 75, %(each)s * output * 600,
    failed * 1000, array_fill(0, ARRAY[%(buckets)s])
FROM (
    SELECT *, 20 + luck %% 2000 AS tokens, 1 + luck %% 400 AS output,
        (luck / 7 %% %(failed_share)s = 0)::int AS failed
    FROM (
        SELECT caller.id, caller.organization_id, hour, supply,
            abs(hashint8extended(caller.id * 1000003 + supply * 1009,
                extract(epoch FROM hour)::bigint)) AS luck
        FROM metering_caller AS caller, unnest(%(supplies)s::int[]) AS supply,
            generate_series(%(first)s::timestamptz, %(last)s, interval '1 hour') AS hour
    ) AS drawn WHERE luck / 31 %% %(share)s = 0
) AS caller
"""
SEALED_DAYS = """
INSERT INTO metering_day (day, closed_at, closed_xid, sealed_at, archive_path)
SELECT DISTINCT accounted_on, accounted_on + interval '25 hours', '3'::xid8,
    accounted_on + interval '25 hours', ''
FROM following_hour_rollup
"""
SEALS = """
INSERT INTO following_seal (day_id, organization_id, event_count, input_tokens,
    cached_input_tokens, output_tokens, input_nanos, cached_input_nanos, output_nanos,
    waived_nanos, rows_digest, digest)
SELECT accounted_on, organization_id, sum(request_count), sum(input_tokens),
    sum(cached_input_tokens), sum(output_tokens), sum(input_nanos), sum(cached_input_nanos),
    sum(output_nanos), sum(waived_nanos), '', ''
FROM following_hour_rollup GROUP BY accounted_on, organization_id
"""
ACCOUNTS = """
INSERT INTO ledger_account (organization_id, kind, owner_id, balance_nanos)
SELECT organization_id, kind, '', CASE kind WHEN 'revenue' THEN -nanos ELSE nanos END
FROM (SELECT organization_id, sum(input_nanos + cached_input_nanos + output_nanos)::bigint AS nanos
    FROM following_hour_rollup GROUP BY 1) AS used,
    unnest(ARRAY['revenue', 'accounts_receivable']) AS kind
"""
TRANSACTIONS = """
INSERT INTO ledger_transaction (id, source, kind, organization_id, posted_at, accounted_on)
SELECT organization_id || accounted_on, 'usage:' || organization_id || accounted_on, 'usage',
    organization_id, accounted_on + interval '26 hours', accounted_on
FROM following_hour_rollup GROUP BY organization_id, accounted_on
"""
ENTRIES = """
INSERT INTO ledger_entry (transaction_id, account_id, nanos)
SELECT used.organization_id || accounted_on, account.id,
    CASE account.kind WHEN 'revenue' THEN -nanos ELSE nanos END
FROM (SELECT organization_id, accounted_on,
        sum(input_nanos + cached_input_nanos + output_nanos)::bigint AS nanos
    FROM following_hour_rollup GROUP BY 1, 2) AS used
JOIN ledger_account AS account ON account.organization_id = used.organization_id
"""
CHARGED = """
UPDATE credit_budget SET posted_nanos = -account.balance_nanos FROM ledger_account AS account
WHERE credit_budget.kind = 'balance' AND account.kind = 'revenue'
    AND account.organization_id = credit_budget.organization_id
"""


def write_month(superuser_url: str, organizations: int, events: int, starts_on: date) -> int:
    """Write a month that is over, followed and sealed; return how many hour rollups it has."""
    period = Period(starts_on)
    make_world(organizations, KEYS_EACH, period.starts_at)
    for number in range(1, VARIANTS):
        make_price(f"model-{number}", at=period.starts_at)
    CALLERS.intern(callers())
    names = [
        (of.variant.model_id, of.variant_id, of.id, "chat.completions", "default")
        for of in Price.objects.select_related("variant")
    ]
    supplies = [found.id for found in SUPPLIES.intern(names).values()]
    hours = period.days * 24 * len(supplies) * organizations * KEYS_EACH // HOURS_SHARE
    with psycopg.connect(superuser_url, autocommit=True) as root:
        root.execute("SET session_replication_role = replica")
        values = {
            "each": max(events // hours, 1), "buckets": 1, "share": HOURS_SHARE,
            "failed_share": FAILED_SHARE, "supplies": supplies,
            "first": period.starts_at, "last": period.ends_at - timedelta(hours=1),
        }  # fmt: skip
        root.execute(ROLLUPS, values)
        made = (SEALED_DAYS, SEALS, ACCOUNTS, TRANSACTIONS, ENTRIES, CHARGED)
        for statement in (*made, "VACUUM ANALYZE"):
            root.execute(statement)
        [(count,)] = root.execute("SELECT count(*) FROM following_hour_rollup").fetchall()
    now = midnight(period.ends_on) + timedelta(hours=2)
    close_days(now=now)
    while not follow_all(now=now):
        pass
    return int(count)


def timed_due(starts_on: date) -> tuple[float, int]:
    """Decide who is to be invoiced; return the seconds, and how many they are."""
    began = time.perf_counter()
    due = uninvoiced(Period(starts_on))
    return time.perf_counter() - began, len(due)


def timed_close(starts_on: date) -> tuple[float, int, int, list[str]]:
    """Close the month; return the seconds, the invoices, their lines, and what is wrong."""
    period = Period(starts_on)
    began = time.perf_counter()
    outcome = close_month(
        period=period, actor=Actor.for_system("bench"), now=period.ends_at + timedelta(hours=2)
    )
    seconds = time.perf_counter() - began
    wrong = [f"{owner}: {reason}" for owner, reason in outcome.failures.items()]
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
    wrong += [check.sentence for check in CHECKS if not run(check).holds]
    return seconds, Invoice.objects.count(), InvoiceLine.objects.count(), wrong


def timed_documents(count: int) -> list[tuple[float, int]]:
    """Return the milliseconds and bytes of the PDF of some invoices, after a first one."""
    rows = list(Invoice.objects.order_by("sequence")[: count + 1])
    invoice_pdf(rows[0])
    found = []
    for row in rows[1:]:
        began = time.perf_counter()
        made = invoice_pdf(row)
        found.append(((time.perf_counter() - began) * 1000, len(made)))
    return found
