"""Receivables: open invoices by how late they are, and what is owed beyond them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from itertools import groupby

from django.db import connection
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from serving.contract.money import CENT_NANOS

BUCKETS = ("not_due", "to_30", "to_60", "to_90", "over_90")
"""How many days an invoice is past its day: none, 1-30, 31-60, 61-90, more."""
WORDS = (
    _("Not due"),
    _("1\N{EN DASH}30 days"),
    _("31\N{EN DASH}60 days"),
    _("61\N{EN DASH}90 days"),
    _("Over 90 days"),
)

# What each organization owes: its receivable, and of its open invoices how much is how late. An
# invoice with less than half a cent to pay is paid. Whoever owes nothing has no open invoice
# (`penstock billing check-integrity` sees to that): only who owes is looked at, not all that was
# ever paid.
OWED = """
WITH receivable AS (
    SELECT organization_id, balance_nanos AS nanos FROM ledger_account
    WHERE kind = 'accounts_receivable' AND owner_id = '' AND balance_nanos <> 0
), open_invoice AS (
    SELECT invoice.organization_id, %(today)s - invoice.due_on AS days_late,
        invoice.total_cents * %(cent)s - coalesce(settled.nanos, 0) AS nanos
    FROM receivable JOIN invoicing_invoice AS invoice USING (organization_id)
    LEFT JOIN LATERAL (
        SELECT sum(nanos) AS nanos FROM invoicing_invoice_payment WHERE invoice_id = invoice.id
    ) AS settled ON true
    WHERE (invoice.total_cents * %(cent)s - coalesce(settled.nanos, 0)) * 2 >= %(cent)s
), aged AS (
    SELECT organization_id, count(*) AS invoices,
        coalesce(sum(nanos) FILTER (WHERE days_late <= 0), 0)::bigint AS not_due,
        coalesce(sum(nanos) FILTER (WHERE days_late BETWEEN 1 AND 30), 0)::bigint AS to_30,
        coalesce(sum(nanos) FILTER (WHERE days_late BETWEEN 31 AND 60), 0)::bigint AS to_60,
        coalesce(sum(nanos) FILTER (WHERE days_late BETWEEN 61 AND 90), 0)::bigint AS to_90,
        coalesce(sum(nanos) FILTER (WHERE days_late > 90), 0)::bigint AS over_90
    FROM open_invoice GROUP BY 1
)
SELECT receivable.organization_id, coalesce(organization.name, ''),
    coalesce(aged.invoices, 0), coalesce(aged.not_due, 0), coalesce(aged.to_30, 0),
    coalesce(aged.to_60, 0), coalesce(aged.to_90, 0), coalesce(aged.over_90, 0),
    receivable.nanos
FROM receivable LEFT JOIN aged ON aged.organization_id = receivable.organization_id
LEFT JOIN organizations_organization AS organization ON organization.id = receivable.organization_id
ORDER BY coalesce(aged.over_90, 0) DESC, coalesce(aged.to_90, 0) DESC,
    coalesce(aged.to_60, 0) DESC, coalesce(aged.to_30, 0) DESC,
    receivable.nanos DESC, 1
"""
# The open invoices of some organizations, the oldest first.
OPEN = """
SELECT invoice.organization_id, invoice.id, invoice.number, invoice.due_on,
    (invoice.total_cents * %(cent)s - coalesce(settled.nanos, 0))::bigint,
    EXISTS (SELECT FROM invoicing_dispute AS dispute
        WHERE dispute.invoice_id = invoice.id AND dispute.closed_at IS NULL)
FROM invoicing_invoice AS invoice LEFT JOIN LATERAL (
    SELECT sum(nanos) AS nanos FROM invoicing_invoice_payment WHERE invoice_id = invoice.id
) AS settled ON true
WHERE invoice.organization_id = ANY(%(ids)s)
    AND (invoice.total_cents * %(cent)s - coalesce(settled.nanos, 0)) * 2 >= %(cent)s
ORDER BY invoice.organization_id, invoice.due_on, invoice.number
"""


@dataclass(frozen=True, slots=True)
class Debtor:
    """What one organization owes, in nanos; `aged` by BUCKETS."""

    organization_id: str
    name: str
    invoice_count: int
    aged: tuple[int, ...]
    receivable_nanos: int

    @property
    def invoiced_nanos(self) -> int:
        """What is left to pay of its invoices."""
        return sum(self.aged)

    @property
    def unbilled_nanos(self) -> int:
        """What it owes that no invoice asks for yet; below zero it paid ahead of the next one."""
        return self.receivable_nanos - self.invoiced_nanos


@dataclass(frozen=True, slots=True)
class OpenInvoice:
    """An invoice with something left to pay."""

    id: str
    number: str
    due_on: date
    open_nanos: int
    is_disputed: bool


def debtors(today: date) -> list[Debtor]:
    """Return who owes anything on a day, what is latest first."""
    with connection.cursor() as cursor:
        cursor.execute(OWED, {"today": today, "cent": CENT_NANOS})
        rows = cursor.fetchall()
    return [
        Debtor(owner, name or owner, count, tuple(aged), receivable)
        for owner, name, count, *aged, receivable in rows
    ]


def total(rows: Iterable[Debtor]) -> Debtor:
    """Return all of them added up."""
    every = list(rows)
    return Debtor(
        organization_id="",
        name=gettext("Total"),
        invoice_count=sum(row.invoice_count for row in every),
        aged=tuple(sum(row.aged[place] for row in every) for place in range(len(BUCKETS))),
        receivable_nanos=sum(row.receivable_nanos for row in every),
    )


def open_invoices(organization_ids: Iterable[str]) -> dict[str, list[OpenInvoice]]:
    """Return the open invoices of some organizations, each one's oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(OPEN, {"ids": list(organization_ids), "cent": CENT_NANOS})
        rows = cursor.fetchall()
    return {
        owner: [OpenInvoice(*row[1:]) for row in its]
        for owner, its in groupby(rows, key=lambda row: row[0])
    }
