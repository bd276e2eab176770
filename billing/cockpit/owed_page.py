"""Receivables: an ageing table by organization, with its open invoices."""

from datetime import date
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.cockpit.owed import BUCKETS, WORDS, Debtor, OpenInvoice, debtors, open_invoices, total
from billing.economics.pages.margin_rows import Money
from billing.reading.exports import plain_dollars
from control.admin.base import OperatorPage, row_url
from control.api.streaming import SignedAmount, csv_bytes, whole_export

ROWS_MAX = 50
INVOICES_MAX = 12
"""Invoices shown of one organization; the list of invoices has all."""
CSV_HEADER = (
    "as_of_utc_day", "organization_id", "organization", "open_invoices",
    *(f"{bucket}_usd" for bucket in BUCKETS), "invoiced_usd", "not_invoiced_yet_usd", "owed_usd",
)  # fmt: skip


class OwedPage(OperatorPage):
    """Ageing of what customers owe."""

    title = _("Receivables")
    purpose = _(
        "What customers owe, by how many days their invoices are past due, and what is not invoiced"
        " yet. Together they are the receivables of the ledger."
    )
    permission_required = "ledger.view_account"
    template_name = "cockpit/owed.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send its numbers as a file."""
        if request.GET.get("format") == "csv":
            return _file(request)
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the debtors of one page, and all of them added up."""
        today = timezone.now().date()
        every = debtors(today)
        page = Paginator(every, ROWS_MAX).get_page(self.request.GET.get("page"))
        invoices = open_invoices(row.organization_id for row in page)
        sums = total(every)
        return super().get_context_data(
            **kwargs,
            today=today,
            words=WORDS,
            page=page,
            rows=[_row(row) | _invoices(row, invoices, today) for row in page],
            total=_row(sums),
            overdue=Money(sum(sums.aged[1:])),
            csv_url=f"{reverse('admin:cockpit_owed')}?format=csv",
        )


def _row(row: Debtor) -> dict[str, Any]:
    return {
        "name": row.name,
        "url": statement_url(row.organization_id) if row.organization_id else "",
        "invoice_count": row.invoice_count,
        "aged": [Money(nanos) for nanos in row.aged],
        "invoiced": Money(row.invoiced_nanos),
        "unbilled": Money(row.unbilled_nanos),
        "owed": Money(row.receivable_nanos),
    }


def _invoices(row: Debtor, found: dict[str, list[OpenInvoice]], today: Any) -> dict[str, Any]:
    its = found.get(row.organization_id, [])
    address = reverse("admin:invoicing_invoice_changelist")
    return {
        "invoices": [_invoice(one, today) for one in its[:INVOICES_MAX]],
        "more_count": max(len(its) - INVOICES_MAX, 0),
        "all_url": f"{address}?{urlencode({'q': row.organization_id})}",
    }


def _invoice(one: OpenInvoice, today: Any) -> dict[str, Any]:
    late = (today - one.due_on).days
    return {
        "number": one.number,
        "url": row_url("admin:invoicing_invoice_change", one.id),
        "open": Money(one.open_nanos),
        "due_on": one.due_on,
        "days_late": max(late, 0),
        "is_disputed": one.is_disputed,
    }


def statement_url(organization_id: str, account: str = "accounts_receivable") -> str:
    """Return where an organization's account is read."""
    asked = urlencode({"organization": organization_id, "account": account})
    return f"{reverse('admin:cockpit_statement')}?{asked}"


def _file(request: HttpRequest) -> HttpResponseBase:
    today = timezone.now().date()
    name = f"receivables-{today}.csv"
    return whole_export(
        request, lambda: _csv(today), content_type="text/csv; charset=utf-8", name=name
    )


def _csv(today: date) -> bytes:
    rows = debtors(today)
    records = [
        (
            today.isoformat(), row.organization_id, row.name, row.invoice_count,
            *map(plain_dollars, row.aged), plain_dollars(row.invoiced_nanos),
            SignedAmount(plain_dollars(row.unbilled_nanos)),
            SignedAmount(plain_dollars(row.receivable_nanos)),
        )
        for row in rows
    ]  # fmt: skip
    return csv_bytes([CSV_HEADER, *records])
