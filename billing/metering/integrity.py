"""Checks of usage against prices, books, leases and rollups; and all checks together."""

from django.db import connection, transaction

from billing.credit import integrity as credit
from billing.ledger import integrity as ledger
from billing.ledger.integrity import Check, Finding, run
from billing.metering.rollups import COUNTS, OUTCOMES, SUMMED
from serving.contract.usage import BILLABLE

BILLABLE_SQL = ", ".join(f"'{outcome}'" for outcome in sorted(BILLABLE))


def _rollup_check(unit: str) -> Check:
    """Compare every sum of a rollup table with the events, per organization, key and bucket."""
    counted = [
        "count(*) AS request_count",
        *(f"count(*) FILTER (WHERE outcome = '{one}') AS {one}_count" for one in OUTCOMES),
        *(f"sum({name}) AS {name}" for name in SUMMED),
    ]
    summed = [f"sum({name}) AS {name}" for name in (*COUNTS, *SUMMED)]
    differs = " OR ".join(f"e.{name} IS DISTINCT FROM r.{name}" for name in (*COUNTS, *SUMMED))
    return Check(
        f"The {unit} rollups are the sums of the events",
        f"""
        WITH e AS (
            SELECT organization_id, key_id, date_trunc('{unit}', received_at, 'UTC') AS bucket_at,
                {", ".join(counted)} FROM metering_usage_event GROUP BY 1, 2, 3
        ), r AS (
            SELECT organization_id, key_id, bucket_at, {", ".join(summed)}
            FROM metering_{unit}_rollup GROUP BY 1, 2, 3
        )
        SELECT organization_id, key_id, bucket_at, e.request_count AS events,
            r.request_count AS rolled_up, e.charged_nanos, r.charged_nanos AS rolled_up_nanos
        FROM e FULL JOIN r USING (organization_id, key_id, bucket_at) WHERE {differs}
        """,  # noqa: S608 -- constants of these modules
    )


CHECKS = (
    Check(
        "Every event is charged or waived by its outcome, at its price",
        f"""
        SELECT e.event_id, e.outcome, e.charged_nanos, e.waived_nanos
        FROM metering_usage_event e LEFT JOIN prices_price p ON p.id = e.price_id
        CROSS JOIN LATERAL (SELECT div(
            (e.input_tokens - e.cached_input_tokens)::numeric * p.input_nanos
            + e.cached_input_tokens::numeric * p.cached_input_nanos
            + e.output_tokens::numeric * p.output_nanos + 500000, 1000000) AS nanos) AS due
        WHERE due.nanos IS DISTINCT FROM e.charged_nanos + e.waived_nanos
            OR (e.outcome IN ({BILLABLE_SQL}) AND e.waived_nanos <> 0)
            OR (e.outcome NOT IN ({BILLABLE_SQL}) AND e.charged_nanos <> 0)
        """,  # noqa: S608 -- constants of the contract
    ),
    Check(
        "Every charge is booked once, and the books hold no other revenue of usage",
        """
        WITH charged AS (
            SELECT transaction_id, organization_id, sum(charged_nanos) AS nanos
            FROM metering_usage_event WHERE charged_nanos > 0 GROUP BY 1, 2
        ), booked AS (
            SELECT t.id AS transaction_id, t.organization_id, -sum(e.nanos) AS nanos
            FROM ledger_transaction t JOIN ledger_entry e ON e.transaction_id = t.id
            JOIN ledger_account a ON a.id = e.account_id
            WHERE t.kind = 'usage' AND a.kind = 'revenue' GROUP BY 1, 2
        )
        SELECT transaction_id, organization_id, charged.nanos AS charged, booked.nanos AS booked
        FROM charged FULL JOIN booked USING (transaction_id, organization_id)
        WHERE charged.nanos IS DISTINCT FROM booked.nanos
        """,
    ),
    Check(
        "Every lease settled exactly what its events were charged",
        """
        WITH events AS (
            SELECT part.lease_id, sum(part.nanos) AS nanos FROM metering_usage_event e
            CROSS JOIN LATERAL unnest(e.lease_ids, e.lease_nanos) AS part (lease_id, nanos)
            GROUP BY 1
        )
        SELECT coalesce(l.id, events.lease_id) AS lease, l.settled_nanos, events.nanos AS charged
        FROM credit_lease l FULL JOIN events ON events.lease_id = l.id
        WHERE coalesce(l.settled_nanos, -1) <> coalesce(events.nanos, 0)
        """,
    ),
    Check(
        "The monthly spend of every budget is the sum of its events",
        """
        WITH events AS (
            SELECT budget.id AS budget_id,
                date_trunc('month', e.received_at, 'UTC')::date AS period,
                sum(e.charged_nanos) AS nanos
            FROM metering_usage_event e
            CROSS JOIN LATERAL unnest(ARRAY[e.organization_id, e.project_id, e.key_id]) budget (id)
            WHERE e.charged_nanos > 0 GROUP BY 1, 2
        )
        SELECT budget_id, period, s.charged_nanos AS counted, events.nanos AS charged
        FROM credit_spend s FULL JOIN events USING (budget_id, period)
        WHERE coalesce(s.charged_nanos, 0) <> coalesce(events.nanos, 0)
        """,
    ),
    _rollup_check("minute"),
    _rollup_check("hour"),
)


def check_all() -> list[Finding]:
    """Run every check of the house, on one snapshot of the database where it is free to."""
    is_outermost = not connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        if is_outermost:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return [run(check) for check in (*ledger.CHECKS, *credit.CHECKS, *CHECKS)]
