"""Checks of the invoices against the ledger, run with all others of the house."""

from billing.ledger.integrity import Check
from serving.contract.money import CENT_NANOS

CHECKS = (
    Check(
        "Every invoice is the sum of its lines, exact and in cents",
        """
        SELECT i.number, i.usage_nanos, i.subtotal_cents, sum(l.amount_nanos) AS lines_nanos,
            sum(l.amount_cents) AS lines_cents
        FROM invoicing_invoice i LEFT JOIN invoicing_invoice_line l ON l.invoice_id = i.id
        GROUP BY i.id HAVING i.usage_nanos IS DISTINCT FROM sum(l.amount_nanos)
            OR i.subtotal_cents IS DISTINCT FROM sum(l.amount_cents)
        """,
    ),
    Check(
        "Every invoice charges what the ledger charged for its month, and owes what it owes",
        """
        WITH ledger AS (
            SELECT t.organization_id, date_trunc('month', t.accounted_on)::date AS starts_on,
                -sum(e.nanos) FILTER (WHERE a.kind = 'revenue') AS charged,
                sum(e.nanos) FILTER (WHERE a.kind = 'accounts_receivable') AS owed
            FROM ledger_transaction t JOIN ledger_entry e ON e.transaction_id = t.id
            JOIN ledger_account a ON a.id = e.account_id
            WHERE t.kind = 'usage' GROUP BY 1, 2
        )
        SELECT i.number, i.usage_nanos, i.owed_nanos, ledger.charged, ledger.owed
        FROM invoicing_invoice i LEFT JOIN ledger USING (organization_id, starts_on)
        WHERE i.usage_nanos <> coalesce(ledger.charged, 0)
            OR i.owed_nanos <> coalesce(ledger.owed, 0)
        """,
    ),
    Check(
        "Invoices with what is not invoiced yet are what the ledger has receivable, to the nano",
        f"""
        WITH receivable AS (
            SELECT organization_id, sum(balance_nanos) AS nanos FROM ledger_account
            WHERE kind = 'accounts_receivable' GROUP BY 1
        ), posted AS (
            SELECT a.organization_id,
                sum(e.nanos) FILTER (WHERE t.kind = 'usage' AND i.id IS NULL) AS uninvoiced,
                -sum(e.nanos) FILTER (WHERE t.kind NOT IN ('usage', 'rounding', 'tax')) AS settled
            FROM ledger_account a JOIN ledger_entry e ON e.account_id = a.id
            JOIN ledger_transaction t ON t.id = e.transaction_id
            LEFT JOIN invoicing_invoice i ON i.organization_id = a.organization_id
                AND i.starts_on = date_trunc('month', t.accounted_on)::date
            WHERE a.kind = 'accounts_receivable' GROUP BY 1
        ), invoiced AS (
            SELECT organization_id, sum(total_cents) * {CENT_NANOS} AS nanos
            FROM invoicing_invoice GROUP BY 1
        )
        SELECT organization_id, receivable.nanos AS receivable, invoiced.nanos AS invoiced,
            posted.uninvoiced, posted.settled
        FROM receivable FULL JOIN posted USING (organization_id)
        FULL JOIN invoiced USING (organization_id)
        WHERE coalesce(receivable.nanos, 0) <> coalesce(invoiced.nanos, 0)
            + coalesce(posted.uninvoiced, 0) - coalesce(posted.settled, 0)
        """,  # noqa: S608 -- constants
    ),
    Check(
        "No invoice is settled beyond its total, or below nothing",
        f"""
        SELECT i.number, i.total_cents, sum(p.nanos) AS settled
        FROM invoicing_invoice i JOIN invoicing_invoice_payment p ON p.invoice_id = i.id
        GROUP BY i.id HAVING sum(p.nanos) NOT BETWEEN 0 AND i.total_cents * {CENT_NANOS}
        """,  # noqa: S608 -- constants
    ),
    Check(
        "Nothing is allotted to invoices that did not settle the receivable",
        """
        WITH settled AS (
            SELECT a.organization_id, -sum(e.nanos) AS nanos
            FROM ledger_account a JOIN ledger_entry e ON e.account_id = a.id
            JOIN ledger_transaction t ON t.id = e.transaction_id
            WHERE a.kind = 'accounts_receivable' AND t.kind NOT IN ('usage', 'rounding', 'tax')
            GROUP BY 1
        )
        SELECT organization_id, sum(p.nanos) AS allotted, min(settled.nanos) AS settled
        FROM invoicing_invoice_payment p LEFT JOIN settled USING (organization_id)
        GROUP BY 1 HAVING sum(p.nanos) > coalesce(min(settled.nanos), 0)
        """,
    ),
    Check(
        "Documents are numbered without gaps, per legal entity",
        """
        SELECT e.name, d.kind, d.next, d.count, d.last FROM invoicing_legal_entity e
        CROSS JOIN LATERAL (
            SELECT 'invoice' AS kind, e.next_invoice AS next, count(*) AS count,
                coalesce(max(sequence), 0) AS last
            FROM invoicing_invoice WHERE legal_entity_id = e.id
            UNION ALL
            SELECT 'credit note', e.next_credit_note, count(*), coalesce(max(sequence), 0)
            FROM invoicing_credit_note WHERE legal_entity_id = e.id
        ) AS d
        WHERE d.count <> d.next - 1 OR d.last <> d.next - 1
        """,
    ),
    Check(
        "No credit note takes back more than its invoice's line",
        """
        SELECT l.id, l.amount_cents, sum(c.amount_cents) AS credited
        FROM invoicing_invoice_line l JOIN invoicing_credit_note_line c ON c.line_id = l.id
        GROUP BY l.id HAVING sum(c.amount_cents) > l.amount_cents
        """,
    ),
)
