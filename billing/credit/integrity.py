"""Checks of credit: grants against the books, leases against what they were granted."""

from billing.ledger.integrity import Check

CHECKS = (
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
        "Every credit account belongs to a grant",
        """
        SELECT a.id, a.organization_id, a.kind FROM ledger_account a
        LEFT JOIN credit_grant g ON g.account_id = a.id
        WHERE a.kind IN ('customer_balance', 'promotional_credit') AND g.id IS NULL
        """,
    ),
    Check(
        "No closed grant has money left",
        """
        SELECT g.id, g.organization_id, -a.balance_nanos AS left_nanos
        FROM credit_grant g JOIN ledger_account a ON a.id = g.account_id
        WHERE g.expired_at IS NOT NULL AND a.balance_nanos <> 0
        """,
    ),
    Check(
        "No lease settled more than it was granted",
        """
        SELECT id, organization_id, gateway_id, granted_nanos, settled_nanos FROM credit_lease
        WHERE settled_nanos > granted_nanos OR settled_nanos < 0
        """,
    ),
)
