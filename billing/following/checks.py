"""What must hold between events, sums, budgets, postings and seals. Days that are not sealed are
checked against their usage, sealed ones by their seals.

USAGE_CHECKS read `open_usage`, a query that `billing.following.open_usage` names; it runs them
together, and hands the others what the usage of open days came to (OPEN_CHARGES).
"""

from billing.following.rollups import NANOS, SUMMED, TOKENS
from billing.following.sealing import CHAINED, SUMS
from billing.ledger.integrity import Check
from serving.contract.usage import OUTCOMES

SEALED = "(SELECT coalesce(max(day), '-infinity') FROM metering_day WHERE sealed_at IS NOT NULL)"
"""The last sealed day."""
REACH = "INTERVAL '92 days'"
"""How long after a request its usage may arrive: sums of older periods stand still."""
CHARGED = " + ".join(NANOS)
CHARGES = {
    "organization_id": "text", "caller_id": "bigint", "received_on": "date",
    "is_followed": "boolean", "nanos": "bigint",
}  # fmt: skip
"""Of OPEN_CHARGES: each is a parameter, an array."""
OPEN_CHARGES = f"""
    unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in CHARGES.items())})
        AS open_charges ({", ".join(CHARGES)})
"""
"""What usage of open days is charged, by caller and the UTC day on which it was received."""
UNFOLLOWED = f"""
    SELECT organization_id, sum(nanos) AS nanos FROM {OPEN_CHARGES}
    WHERE NOT is_followed GROUP BY 1
"""  # noqa: S608 -- constants of this module
UNPOSTED = "SELECT organization_id, sum(nanos) AS nanos FROM credit_unposted_usage GROUP BY 1"


def _rollup_check(unit: str) -> Check:
    """Compare the sums of a table of rollups with the usage, by the hour and all dimensions.

    Usage counts in and rollups count out, so that one pass over both finds what is left of either.
    """
    keys = "organization_id, caller_id, supply_id, accounted_on, bucket_at"
    used = {
        "request_count": "request_count",
        **{f"{one}_count": f"CASE outcome WHEN '{one}' THEN request_count ELSE 0 END"
           for one in OUTCOMES},
        **{name: name for name in TOKENS},
        **{name: f"CASE WHEN is_waived THEN 0 ELSE {name} END" for name in NANOS},
        "waived_nanos": f"CASE WHEN is_waived THEN {CHARGED} ELSE 0 END",
    }  # fmt: skip
    bucket = "bucket_at" if unit == "hour" else "date_bin('1 hour', bucket_at, '2000-01-01Z')"
    return Check(
        f"The {unit} rollups are the sums of the usage that was followed",
        f"""
        SELECT {keys}, sum(request_count) AS requests_beyond_rollup,
            sum(output_nanos) AS output_nanos_beyond_rollup
        FROM (
            SELECT {keys}, {", ".join(f"{value} AS {name}" for name, value in used.items())}
            FROM open_usage WHERE is_rolled_up
            UNION ALL
            SELECT organization_id, caller_id, supply_id, accounted_on, {bucket},
                {", ".join(f"-{name}" for name in used)}
            FROM following_{unit}_rollup WHERE accounted_on > {SEALED}
        ) AS both_sides
        GROUP BY {keys} HAVING {" OR ".join(f"sum({name}) <> 0" for name in used)}
        """,  # noqa: S608 -- constants of these modules
    )


USAGE_CHECKS = (
    Check(
        "All usage of open days is rated at its price, meter by meter",
        """
        SELECT organization_id, caller_id, supply_id, bucket_at, misrated_count
        FROM open_usage WHERE misrated_count > 0
        """,
    ),
    Check(
        "All usage of open days is charged or waived by its outcome",
        """
        SELECT organization_id, caller_id, outcome, is_waived, misjudged_count
        FROM open_usage WHERE misjudged_count > 0
        """,
    ),
    Check(
        "All usage of open days belongs to its caller's organization",
        """
        SELECT u.organization_id, u.caller_id, c.organization_id AS caller_of
        FROM open_usage u LEFT JOIN metering_caller c ON c.id = u.caller_id
        WHERE c.organization_id IS DISTINCT FROM u.organization_id
        """,
    ),
    _rollup_check("minute"),
    _rollup_check("hour"),
)

BUDGET_CHECKS = (
    Check(
        "Every balance was charged what its usage comes to, sealed and open",
        f"""
        WITH used AS (
            SELECT organization_id, sum(nanos) AS nanos FROM (
                SELECT organization_id, {CHARGED} AS nanos FROM following_seal
                UNION ALL
                SELECT organization_id, nanos FROM {OPEN_CHARGES}
            ) AS every GROUP BY 1
        )
        SELECT organization_id, b.posted_nanos AS posted, used.nanos AS charged
        FROM (SELECT * FROM credit_budget WHERE kind = 'balance') b
        FULL JOIN used USING (organization_id)
        WHERE coalesce(b.posted_nanos, 0) <> coalesce(used.nanos, 0)
        """,  # noqa: S608 -- constants of this module
    ),
    Check(
        "Every month's budget was charged what its usage comes to",
        f"""
        WITH since AS (
            SELECT date_trunc('month', least({SEALED}, current_date) - {REACH}, 'UTC') AS at
        ), used AS (
            SELECT caller_id, bucket_at, {CHARGED} AS nanos FROM following_hour_rollup, since
            WHERE accounted_on <= {SEALED} AND bucket_at >= since.at
            UNION ALL
            SELECT caller_id, received_on::timestamp AT TIME ZONE 'UTC', nanos
            FROM {OPEN_CHARGES}
        ), monthly AS (
            SELECT caller_id, date_trunc('month', bucket_at, 'UTC') AS starts_at,
                sum(nanos) AS nanos
            FROM used GROUP BY 1, 2
        ), charged AS (
            SELECT 'limit:' || name.id AS budget_id, starts_at, sum(nanos) AS nanos
            FROM monthly JOIN metering_caller c ON c.id = monthly.caller_id
            CROSS JOIN LATERAL unnest(ARRAY[c.organization_id, c.project_id, c.key_id]) AS name (id)
            GROUP BY 1, 2
        )
        SELECT budget_id, starts_at, b.posted_nanos AS posted, charged.nanos AS charged
        FROM (SELECT * FROM credit_budget, since WHERE period = 'month' AND starts_at >= at) b
        FULL JOIN charged USING (budget_id, starts_at)
        WHERE coalesce(b.posted_nanos, 0) <> coalesce(charged.nanos, 0)
        """,  # noqa: S608 -- constants of this module
    ),
    Check(
        "Every week's and day's budget was charged what its usage comes to",
        f"""
        WITH used AS (
            SELECT caller_id, bucket_at, {CHARGED} AS nanos FROM following_hour_rollup
            WHERE accounted_on <= {SEALED} AND bucket_at >= current_date - {REACH}
            UNION ALL
            SELECT caller_id, received_on::timestamp AT TIME ZONE 'UTC', nanos
            FROM {OPEN_CHARGES}
        ), fine AS (
            SELECT *, split_part(budget_id, ':', 2) AS owner FROM credit_budget
            WHERE period IN ('week', 'day') AND starts_at >= current_date - {REACH}
        ), charged AS (
            SELECT fine.id, sum(used.nanos) AS nanos FROM fine
            JOIN metering_caller c ON c.organization_id = fine.organization_id
                AND fine.owner IN (c.organization_id, c.project_id, c.key_id)
            JOIN used ON used.caller_id = c.id
                AND used.bucket_at >= fine.starts_at AND used.bucket_at < fine.ends_at
            GROUP BY 1
        )
        SELECT budget_id, starts_at, posted_nanos AS posted, charged.nanos AS charged
        FROM fine LEFT JOIN charged USING (id)
        WHERE posted_nanos <> coalesce(charged.nanos, 0)
        """,  # noqa: S608 -- constants of this module
    ),
    Check(
        "Nothing is leased beyond a limit, unless an alarm tells why or it is recalled",
        """
        SELECT b.budget_id, b.starts_at, b.limit_nanos, b.posted_nanos, b.pending_nanos
        FROM credit_budget b
        WHERE b.pending_nanos > 0 AND b.posted_nanos + b.pending_nanos > b.limit_nanos
            AND EXISTS (
                SELECT FROM credit_lease l WHERE l.budget_id = b.id AND l.closed_at IS NULL
                    AND l.stopped_at IS NULL AND l.recalled_at IS NULL
                    AND l.keep_nanos > l.settled_nanos
            )
            AND NOT EXISTS (
                SELECT FROM metering_tally t WHERE t.organization_id = b.organization_id
                    AND t.kind IN ('lease_overrun', 'missing_lease', 'unknown_lease',
                        'foreign_lease', 'closed_lease', 'charge_difference')
                    AND t.day >= (
                        SELECT (min(l.granted_at) AT TIME ZONE 'UTC')::date FROM credit_lease l
                        WHERE l.budget_id = b.id AND l.closed_at IS NULL
                    )
            )
        """,
    ),
)

LEDGER_USED = """
    SELECT t.organization_id, -sum(e.nanos) AS nanos
    FROM ledger_transaction t JOIN ledger_entry e ON e.transaction_id = t.id
    JOIN ledger_account a ON a.id = e.account_id
    WHERE t.kind = 'usage' AND a.kind = 'revenue' GROUP BY 1
"""

POSTING_CHECKS = (
    Check(
        "What a balance was charged is in the ledger, unposted, or not followed yet",
        f"""
        SELECT organization_id, b.posted_nanos AS posted, ledger.nanos AS in_ledger,
            unposted.nanos AS unposted, unfollowed.nanos AS unfollowed
        FROM (SELECT * FROM credit_budget WHERE kind = 'balance') b
        FULL JOIN ({LEDGER_USED}) ledger USING (organization_id)
        FULL JOIN ({UNPOSTED}) unposted USING (organization_id)
        FULL JOIN ({UNFOLLOWED}) unfollowed USING (organization_id)
        WHERE coalesce(b.posted_nanos, 0) <> coalesce(ledger.nanos, 0)
            + coalesce(unposted.nanos, 0) + coalesce(unfollowed.nanos, 0)
        """,  # noqa: S608 -- constants of this module
    ),
    Check(
        "A balance is the ledger's credit less its debt and what it has yet to book",
        f"""
        WITH ledger AS (
            SELECT organization_id, -sum(balance_nanos) AS nanos FROM ledger_account
            WHERE kind IN ('customer_balance', 'promotional_credit', 'accounts_receivable')
            GROUP BY 1
        )
        SELECT organization_id, b.funded_nanos AS funded, b.posted_nanos AS posted,
            ledger.nanos AS in_ledger, unposted.nanos AS unposted, unfollowed.nanos AS unfollowed
        FROM (SELECT * FROM credit_budget WHERE kind = 'balance') b
        FULL JOIN ledger USING (organization_id)
        FULL JOIN ({UNPOSTED}) unposted USING (organization_id)
        FULL JOIN ({UNFOLLOWED}) unfollowed USING (organization_id)
        WHERE coalesce(b.funded_nanos - b.posted_nanos, 0) <> coalesce(ledger.nanos, 0)
            - coalesce(unposted.nanos, 0) - coalesce(unfollowed.nanos, 0)
        """,  # noqa: S608 -- constants of this module
    ),
    Check(
        "The ledger books each sealed day what its seals say",
        f"""
        WITH since AS (
            SELECT greatest(({SEALED} - {REACH})::date, (
                SELECT max(accounted_on) + 1 FROM ledger_transaction
                WHERE kind = 'usage' AND created_xid IS NULL
            )) AS day
        ), booked AS (
            SELECT t.organization_id, t.accounted_on AS day_id, -sum(e.nanos) AS nanos
            FROM since JOIN ledger_transaction t ON t.accounted_on >= since.day
            JOIN ledger_entry e ON e.transaction_id = t.id
            JOIN ledger_account a ON a.id = e.account_id
            WHERE t.kind = 'usage' AND a.kind = 'revenue' AND t.accounted_on <= {SEALED}
            GROUP BY 1, 2
        ), sealed AS (
            SELECT organization_id, day_id, {CHARGED} AS nanos
            FROM following_seal, since WHERE day_id >= since.day
        )
        SELECT organization_id, day_id, sealed.nanos AS sealed, booked.nanos AS booked
        FROM sealed FULL JOIN booked USING (organization_id, day_id)
        WHERE coalesce(sealed.nanos, 0) <> coalesce(booked.nanos, 0)
        """,  # noqa: S608 -- constants of this module
    ),
)

_AFTER = "lag(digest) OVER (PARTITION BY organization_id ORDER BY day_id)"
SEAL_CHECKS = (
    Check(
        "Every seal covers its sums and the seal before",
        f"""
        SELECT organization_id, day_id FROM (
            SELECT organization_id, day_id, digest, {CHAINED.format(before=_AFTER)} AS due
            FROM following_seal
        ) AS chain WHERE digest <> due
        """,  # noqa: S608 -- constants of these modules
    ),
    Check(
        "The hour rollups of sealed days are what their seals say",
        f"""
        WITH rolled AS (
            SELECT organization_id, accounted_on AS day_id, sum(request_count) AS event_count,
                {", ".join(f"sum({name}) AS {name}" for name in SUMS[1:])}
            FROM following_hour_rollup
            WHERE accounted_on BETWEEN {SEALED} - {REACH} AND {SEALED} GROUP BY 1, 2
        ), sealed AS (SELECT * FROM following_seal WHERE day_id >= {SEALED} - {REACH})
        SELECT organization_id, day_id, sealed.event_count AS sealed,
            rolled.event_count AS rolled_up
        FROM sealed FULL JOIN rolled USING (organization_id, day_id)
        WHERE {" OR ".join(f"sealed.{name} IS DISTINCT FROM rolled.{name}" for name in SUMS)}
        """,  # noqa: S608 -- constants of these modules
    ),
    Check(
        "Every sealed day counts the usage of its seals",
        """
        SELECT d.day, d.event_count, sum(s.event_count) AS sealed FROM metering_day d
        LEFT JOIN following_seal s ON s.day_id = d.day WHERE d.sealed_at IS NOT NULL
        GROUP BY d.day HAVING d.event_count IS DISTINCT FROM coalesce(sum(s.event_count), 0)
        """,
    ),
)

BOOK_CHECKS = (*BUDGET_CHECKS, *POSTING_CHECKS, *SEAL_CHECKS)

assert set(SUMS[1:]) < set(SUMMED)  # noqa: S101 -- what is sealed is rolled up
