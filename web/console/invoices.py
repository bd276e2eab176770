"""Invoices and credit notes: the list, an invoice with its chart, PDF files, and payment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db.models import prefetch_related_objects
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from billing.invoicing import selectors
from billing.invoicing.models import InvoiceLine
from billing.invoicing.periods import Period
from billing.invoicing.printed import dollars, invoice_printed, line_groups
from billing.invoicing.running import draft_printed, running_month, waits_for_close
from billing.invoicing.selectors import STATE_LABELS, Standing
from billing.invoicing.typeset.pdf import credit_note_pdf, invoice_pdf, pdf
from billing.payments.errors import StripeAway
from billing.payments.services import start_invoice_checkout
from billing.payments.services.asking import CHARGE_MIN_CENTS
from control.api.streaming import whole_export
from control.errors import Conflict, InvalidValue, NotPermitted
from control.permissions import Permission
from serving.contract.money import format_dollars
from web.console.base import PageContext, console_page
from web.console.past_due import notice_of
from web.console.usage.chart import NANOS, Chart, Series

METERS = (
    (_("Uncached input"), "input"),
    (_("Cached input"), "cached_input"),
    (_("Output"), "output"),
)
HEIGHT, WIDTH, GAP = 60, 20, 3
BADGES = {"overdue": "badge-bad", "disputed": "badge-warn", "paid": "badge-good"}
"""The badge class of a state; the others have none."""


@dataclass(frozen=True, slots=True)
class DayBar:
    """One segment of a day's bar, in the drawing's units."""

    x: int
    y: int
    height: int
    ink: str


@dataclass(frozen=True, slots=True)
class DayChart:
    """A chart without script: bars in a box of `width` units, and labels of days below them."""

    width: int
    bars: list[DayBar]
    labels: list[tuple[int, int]]
    words: str


def chart_of(period: Period, days: Sequence[Sequence[int]]) -> Chart:
    """Return the page's chart of a month: money per day, stacked by meter."""
    labels = [f"{period.starts_on:%b} {number}" for number in range(1, len(days) + 1)]
    titles = [f"{number} {period.words} (UTC)" for number in range(1, len(days) + 1)]
    series = [
        Series(
            str(label),
            f"ink-{meter}",
            [day[index] / NANOS for day in days],
            [format_dollars(day[index]) for day in days],
        )
        for index, (label, meter) in enumerate(METERS)
    ]
    return Chart("usd", labels, titles, series)


def drawing_of(period: Period, days: Sequence[Sequence[int]]) -> DayChart:
    """Return the same chart drawn on the server, for printing."""
    top = max((sum(day) for day in days), default=0) or 1
    bars = []
    for index, day in enumerate(days):
        for number, (_label, meter) in enumerate(METERS):
            y, end = (HEIGHT - HEIGHT * sum(day[:count]) // top for count in (number + 1, number))
            if end > y:
                bars.append(DayBar(index * WIDTH + GAP, y, end - y, f"ink-{meter}"))
    labels = [
        (index * WIDTH + WIDTH // 2, index + 1)
        for index in range(len(days))
        if index == 0 or (index + 1) % 5 == 0
    ]
    dearest = max(range(len(days)), key=lambda index: sum(days[index]), default=0)
    words = gettext("Charges for each day of %(month)s; the highest is on day %(day)d, %(amount)s")
    amount = format_dollars(sum(days[dearest]) if days else 0)
    values = {"month": period.words, "day": dearest + 1, "amount": amount}
    return DayChart(len(days) * WIDTH, bars, labels, words % values)


def groups_of(
    page: PageContext, lines: Sequence[InvoiceLine], period: Period
) -> list[dict[str, Any]]:
    """Return lines in groups, each with the URL of its requests."""
    groups = line_groups(lines, period)
    in_order = iter(sorted(lines, key=lambda line: line.position))
    for group in groups:
        for row in group["rows"]:
            line = next(in_order)
            row["url"] = requests_url(page, line)
    return groups


def requests_url(page: PageContext, line: InvoiceLine) -> str:
    """Return the URL of a line's requests: those at its price, received in its month."""
    return page.url(
        "requests",
        price=line.price_id,
        **{"from": line.period.starts_on.isoformat(), "to": line.period.last_day.isoformat()},
    )


@dataclass(frozen=True, slots=True)
class InvoiceRow:
    """An invoice in the list."""

    standing: Standing
    state: tuple[str, str]
    total: str
    left: str
    url: str
    pdf_url: str


@console_page("invoices")
def invoices(page: PageContext) -> HttpResponse:
    """Show the current month and list the invoices."""
    require_money(page)
    now = timezone.now()
    standings = selectors.standings(selectors.invoices(page.organization))
    month = running_month(page.organization, now=now, invoiced=standings)
    context = {
        "notice": notice_of(page, now),
        "month": month,
        "so_far": dollars(month.subtotal_cents),
        "credit": dollars(month.credit_cents),
        "left": dollars(month.net_cents),
        "pace": None if month.pace_cents is None else dollars(month.pace_cents),
        "chart": chart_of(month.period, month.days),
        "groups": groups_of(page, month.lines, month.period),
        "closing": waits_for_close(page.organization, now=now),
        "rows": [row_of(page, one) for one in standings],
    }
    return page.render("console/invoices.html", context)


@console_page("invoices")
def invoice(page: PageContext, invoice_id: str) -> HttpResponse:
    """Show an invoice as a printable page."""
    require_money(page)
    found = selectors.invoice(page.organization, invoice_id)
    prefetch_related_objects([found], "lines")
    lines = list(found.lines.all())
    row = row_of(page, selectors.standing(found))
    context = {
        "invoice": found,
        "printed": invoice_printed(found),
        "row": row,
        "may_pay": may_pay(page, row.standing),
        "drawing": drawing_of(found.period, found.days),
        "groups": groups_of(page, lines, found.period),
        "notes": [
            (note, dollars(note.total_cents), page.url("credit_note_pdf", note.id))
            for note in selectors.credit_notes(found)
        ],
    }
    return page.render("console/invoice.html", context)


@require_POST
@console_page("invoices")
def invoice_pay(page: PageContext, invoice_id: str) -> HttpResponse:
    """Redirect to Stripe's page for the rest of an invoice."""
    try:
        payment = start_invoice_checkout(
            organization=page.organization,
            invoice_id=invoice_id,
            actor=page.actor,
            now=timezone.now(),
        )
    except (StripeAway, Conflict, InvalidValue) as error:
        messages.error(page.request, error.message)
        return redirect(page.url("invoice", invoice_id))
    return redirect(page.url("billing_payment", payment.id, go="1"))


@console_page("invoices")
def invoice_file(page: PageContext, invoice_id: str) -> HttpResponseBase:
    """Return an invoice as PDF."""
    require_money(page)
    found = selectors.invoice(page.organization, invoice_id)
    return file_of(page, found.number, lambda: invoice_pdf(found))


@console_page("invoices")
def credit_note_file(page: PageContext, note_id: str) -> HttpResponseBase:
    """Return a credit note as PDF."""
    require_money(page)
    found = selectors.credit_note(page.organization, note_id)
    return file_of(page, found.number, lambda: credit_note_pdf(found))


@console_page("invoices")
def running_pdf(page: PageContext) -> HttpResponseBase:
    """Return the current month as PDF, marked as a draft."""
    require_money(page)
    month = running_month(page.organization, now=timezone.now())
    name = f"draft-{month.period}"
    return file_of(page, name, lambda: pdf(draft_printed(page.organization, month)))


def may_pay(page: PageContext, standing: Standing) -> bool:
    """Return whether the member may pay an invoice on Stripe's page now."""
    is_payable = standing.open_cents >= CHARGE_MIN_CENTS and not standing.is_disputed
    return is_payable and settings.CONFIG.stripe is not None and page.may(Permission.BILLING_WRITE)


def require_money(page: PageContext) -> None:
    """Raise NotPermitted if the member may not see invoices."""
    if not page.may(Permission.BILLING_READ):
        raise NotPermitted(gettext("Only owners, admins and billing members can see invoices."))


def row_of(page: PageContext, standing: Standing) -> InvoiceRow:
    """Return an invoice's row in the list."""
    found = standing.invoice
    state = standing.state(timezone.now().date())
    return InvoiceRow(
        standing=standing,
        state=(str(STATE_LABELS[state]), BADGES.get(state, "")),
        total=dollars(found.total_cents),
        left=dollars(standing.open_cents),
        url=page.url("invoice", found.id),
        pdf_url=page.url("invoice_pdf", found.id),
    )


def file_of(page: PageContext, name: str, content: Callable[[], bytes]) -> HttpResponseBase:
    """Return a PDF that the browser shows inline."""
    return whole_export(
        page.request,
        content,
        content_type="application/pdf",
        name=f"{name}.pdf",
        organization_id=page.organization.id,
        is_inline=True,
    )
