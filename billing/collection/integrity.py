"""Checks of collection, run with all others of the house."""

from billing.ledger.integrity import Check

CHECKS = (
    Check(
        "A credit limit is suspended exactly while collection limits the service",
        """
        SELECT b.organization_id, b.is_credit_limit_suspended, c.limited_at
        FROM credit_budget b LEFT JOIN collection_case c ON c.organization_id = b.organization_id
        WHERE b.kind = 'balance' AND b.is_credit_limit_suspended <> (c.limited_at IS NOT NULL)
        """,
    ),
    Check(
        "Nobody is limited or suspended for invoices that are paid",
        """
        SELECT c.organization_id, c.state, c.invoice_id
        FROM collection_case c JOIN invoicing_invoice i ON i.id = c.invoice_id
        WHERE (c.limited_at IS NOT NULL OR c.suspended_at IS NOT NULL)
            AND c.state <> 'written_off' AND c.next_at > now()
            AND NOT EXISTS (
                SELECT FROM invoicing_invoice o
                WHERE o.organization_id = c.organization_id AND o.due_on <= CURRENT_DATE
                    AND o.total_cents * 10000000 - 5000000 > (
                        SELECT coalesce(sum(p.nanos), 0) FROM invoicing_invoice_payment p
                        WHERE p.invoice_id = o.id
                    )
            )
        """,
    ),
)
