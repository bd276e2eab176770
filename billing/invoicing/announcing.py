"""Telling who waits for it, by mail and webhook: rows of the outbox, in the transaction that
finalizes, settles or corrects an invoice."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from billing.invoicing.models import CreditNote, Invoice
from billing.invoicing.printed import (
    credit_note_totals,
    credited_to,
    day,
    dollars,
    invoice_totals,
)
from billing.invoicing.selectors import billing_profile
from control.mail.services import Attachment, absolute, send_mail
from control.organizations.selectors import notification_recipients
from control.webhooks.services import send_event


def announce_finalized(invoice: Invoice, *, now: datetime) -> None:
    """Tell that there is an invoice, with the document."""
    due = invoice.due_cents
    _emit("invoice.finalized", invoice, now=now)
    _mail(
        "invoice",
        invoice.organization_id,
        {
            "number": invoice.number,
            "month": invoice.period.words,
            "name": invoice.buyer["name"],
            "seller": invoice.seller["name"],
            "due": dollars(due) if due else "",
            "due_on": day(invoice.due_on),
            "totals": invoice_totals(invoice),
            "bank_details": invoice.seller["bank_details"] if due else [],
            "url": absolute(f"/{invoice.organization_id}/invoices/{invoice.id}"),
        },
        attachment=Attachment("invoice_pdf", invoice.id),
        now=now,
    )


def announce_credit_note(note: CreditNote, *, now: datetime) -> None:
    """Tell that something was given back, with the document."""
    _mail(
        "credit_note",
        note.organization_id,
        {
            "number": note.number,
            "invoice_number": note.invoice.number,
            "month": note.invoice.period.words,
            "total": dollars(note.total_cents),
            "totals": credit_note_totals(note),
            "credited_to": credited_to(note),
            "reason": note.reason,
            "url": absolute(f"/{note.organization_id}/invoices/{note.invoice_id}"),
        },
        attachment=Attachment("credit_note_pdf", note.id),
        now=now,
    )


def announce_paid(invoice: Invoice, *, now: datetime) -> None:
    """Tell that nothing is left to pay of an invoice that there was something to pay of."""
    _emit("invoice.paid", invoice, now=now)
    _mail(
        "invoice_paid",
        invoice.organization_id,
        {
            "number": invoice.number,
            "month": invoice.period.words,
            "name": invoice.buyer["name"],
            "total": dollars(invoice.total_cents),
            "url": absolute(f"/{invoice.organization_id}/invoices/{invoice.id}"),
        },
        attachment=Attachment("invoice_pdf", invoice.id),
        now=now,
    )


def recipients(organization_id: str) -> Collection[str]:
    """Return who gets invoices: those whom the profile names, else the people who may pay."""
    return billing_profile(organization_id).recipients or notification_recipients(organization_id)


def _emit(kind: str, invoice: Invoice, *, now: datetime) -> None:
    data = {
        "id": invoice.id,
        "organization_id": invoice.organization_id,
        "number": invoice.number,
        "period": str(invoice.period),
        "currency": invoice.currency,
        "subtotal_cents": invoice.subtotal_cents,
        "credit_applied_cents": invoice.credit_applied_cents,
        "tax_cents": invoice.tax_cents,
        "total_cents": invoice.total_cents,
        "due_on": invoice.due_on.isoformat(),
        "url": absolute(f"/{invoice.organization_id}/invoices/{invoice.id}"),
    }
    send_event(
        organization_id=invoice.organization_id, event_type=kind, data=data, key=invoice.id, now=now
    )


def _mail(
    template: str,
    organization_id: str,
    context: dict[str, Any],
    *,
    attachment: Attachment,
    now: datetime,
) -> None:
    send_mail(
        template=template,
        to=recipients(organization_id),
        context=context,
        key=f"{template}:{attachment.id}",
        organization_id=organization_id,
        now=now,
        attachment=attachment,
    )
