"""Checks of credit: budgets against their leases, grants against the ledger."""

from billing.ledger.integrity import Check

CHECKS = (
    Check(
        "Every budget's pending is what its open leases hold",
        """
        WITH held AS (
            SELECT budget_id, sum(credit_held(keep_nanos, settled_nanos, closed_at)) AS nanos
            FROM credit_lease WHERE closed_at IS NULL GROUP BY 1
        )
        SELECT b.budget_id, b.starts_at, b.pending_nanos, coalesce(held.nanos, 0) AS held
        FROM credit_budget b LEFT JOIN held ON held.budget_id = b.id
        WHERE b.pending_nanos <> coalesce(held.nanos, 0)
        """,
    ),
    Check(
        "A balance is limited to what funds it and its credit limit, if that is not suspended",
        """
        SELECT budget_id, limit_nanos, funded_nanos, credit_limit_nanos, is_credit_limit_suspended
        FROM credit_budget
        WHERE kind = 'balance' AND limit_nanos IS DISTINCT FROM
            funded_nanos + CASE WHEN is_credit_limit_suspended THEN 0 ELSE credit_limit_nanos END
        """,
    ),
    Check(
        "A balance's credit limit is that of its organization, none of a prepaid one",
        """
        SELECT b.budget_id, o.billing_mode, b.credit_limit_nanos, o.credit_limit_nanos AS wanted
        FROM credit_budget b JOIN organizations_organization o ON o.id = b.organization_id
        WHERE b.kind = 'balance' AND b.credit_limit_nanos
            <> CASE o.billing_mode WHEN 'postpaid' THEN o.credit_limit_nanos ELSE 0 END
        """,
    ),
    Check(
        "A balance is funded by what the ledger's transactions add to it",
        """
        WITH added AS (
            SELECT organization_id, sum(funded_nanos) AS nanos FROM ledger_transaction
            WHERE funded_nanos <> 0 GROUP BY 1
        )
        SELECT organization_id, b.funded_nanos, added.nanos AS added
        FROM (SELECT organization_id, funded_nanos FROM credit_budget WHERE kind = 'balance') b
        FULL JOIN added USING (organization_id)
        WHERE coalesce(b.funded_nanos, 0) <> coalesce(added.nanos, 0)
        """,
    ),
    Check(
        "No lease settled more than it was granted, unless a person looked into it",
        """
        SELECT id, organization_id, gateway_id, granted_nanos, settled_nanos FROM credit_lease
        WHERE settled_nanos > granted_nanos AND overrun_seen_at IS NULL
        """,
    ),
    Check(
        "Every grant was posted once, with its amount",
        """
        SELECT g.id, g.organization_id, g.amount_nanos, sum(-e.nanos) AS posted
        FROM credit_grant g
        LEFT JOIN ledger_transaction t ON t.source = 'grant:' || g.id
        LEFT JOIN ledger_entry e ON e.transaction_id = t.id AND e.account_id = g.account_id
        GROUP BY g.id HAVING sum(-e.nanos) IS DISTINCT FROM g.amount_nanos
        """,
    ),
    Check(
        "What expired of a grant is what the ledger took of it",
        """
        WITH taken AS (
            SELECT e.account_id, sum(e.nanos) AS nanos
            FROM ledger_transaction t JOIN ledger_entry e ON e.transaction_id = t.id
            WHERE t.kind IN ('expiry', 'expiry_reversal') GROUP BY 1
        )
        SELECT g.id, g.organization_id, g.expired_nanos, taken.nanos AS in_ledger
        FROM credit_grant g LEFT JOIN taken ON taken.account_id = g.account_id
        WHERE g.expired_nanos <> coalesce(taken.nanos, 0)
        """,
    ),
    Check(
        "Every credit account belongs to a grant",
        """
        SELECT a.id, a.organization_id, a.kind FROM ledger_account a
        LEFT JOIN credit_grant g ON g.account_id = a.id
        WHERE a.kind IN ('customer_balance', 'promotional_credit') AND g.id IS NULL
        """,
    ),
    Check(
        "A grant is marked as having something left while its account does",
        """
        SELECT g.id, g.organization_id, g.has_remaining, -a.balance_nanos AS left_nanos
        FROM credit_grant g JOIN ledger_account a ON a.id = g.account_id
        WHERE g.has_remaining <> (a.balance_nanos <> 0)
        """,
    ),
    Check(
        "No closed grant has money left",
        """
        SELECT g.id, g.organization_id, -a.balance_nanos AS left_nanos
        FROM credit_grant g JOIN ledger_account a ON a.id = g.account_id
        WHERE g.closed_at IS NOT NULL AND a.balance_nanos <> 0
        """,
    ),
)
