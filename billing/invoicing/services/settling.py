"""Invoices follow the ledger: what lowers an organization's receivable settles its invoices, oldest
first, and what raises it again opens them, newest first. The balance is locked.

Each call makes good the difference between the two, so a repeat does nothing, and payments and
closes come to the same in any order.
"""

from datetime import datetime
from typing import Any

from django.db import transaction

from billing.credit.services.grants import hold_balance
from billing.invoicing.announcing import announce_paid
from billing.invoicing.models import Invoice, InvoicePayment
from billing.invoicing.selectors import (
    BY_WRITE_OFF,
    settled_last,
    standing,
    unallotted,
    unsettled_first,
)

BY_CREDIT = "credit"


@transaction.atomic
def apply_payment(*, organization_id: str, payment_id: str, now: datetime) -> list[Invoice]:
    """Settle invoices by a payment that was recorded; return those that it paid in full."""
    hold_balance(organization_id, now=now)
    return settle(organization_id, now=now, cause="payment", payment_id=payment_id)


@transaction.atomic
def settle_invoices(*, organization_id: str, now: datetime) -> list[Invoice]:
    """Let an organization's invoices follow the ledger; return those that are paid by it."""
    hold_balance(organization_id, now=now)
    return settle(organization_id, now=now)


def settle(
    organization_id: str, *, now: datetime, cause: str = BY_CREDIT, payment_id: str = ""
) -> list[Invoice]:
    """Do the same in the caller's transaction, who holds the balance."""
    by = {"cause": cause, "payment_id": payment_id, "settled_at": now}
    left = unallotted(organization_id)
    if left.nanos < 0:
        _take_back(organization_id, -left.nanos, by)
        return []
    written_off = min(max(left.written_off_nanos, 0), left.nanos)
    paid = _allot_oldest_first(organization_id, left.nanos - written_off, by, now=now)
    by_write_off = {"cause": BY_WRITE_OFF, "payment_id": "", "settled_at": now}
    _allot_oldest_first(organization_id, written_off, by_write_off, now=now)
    return paid


def allot(invoice: Invoice, nanos: int, by: dict[str, Any], *, now: datetime) -> bool:
    """Settle a part of one invoice; return whether that paid it, and tell who waits for it.

    Nobody is told of one that was written off or taken back: it was not paid.
    """
    was_settled = standing(invoice).is_settled
    InvoicePayment.objects.create(
        invoice=invoice, organization_id=invoice.organization_id, nanos=nanos, **by
    )
    is_paid = not was_settled and standing(invoice).state(now.date()) == "paid"
    if is_paid:
        announce_paid(invoice, now=now)
    return is_paid


def _allot_oldest_first(
    organization_id: str, nanos: int, by: dict[str, Any], *, now: datetime
) -> list[Invoice]:
    paid = []
    for invoice in unsettled_first(organization_id) if nanos else []:
        if nanos == 0:
            break
        part = min(nanos, standing(invoice).open_nanos)
        nanos -= part
        if allot(invoice, part, by, now=now):
            paid.append(invoice)
    return paid


def _take_back(organization_id: str, nanos: int, by: dict[str, Any]) -> None:
    for invoice in settled_last(organization_id):
        part = min(nanos, standing(invoice).settled_nanos)
        nanos -= part
        if part:
            InvoicePayment.objects.create(
                invoice=invoice, organization_id=organization_id, nanos=-part, **by
            )
        if nanos == 0:
            return
