"""What the rooms below tell: debts that were paid settle invoices in the same transaction."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from billing.credit.signals import payment_recorded, receivables_changed
from billing.invoicing.models import Invoice
from billing.invoicing.services.settling import settle


def listen() -> None:
    """Follow payments and credit from now on."""
    payment_recorded.connect(_on_payment, dispatch_uid="billing.invoicing.payment")
    receivables_changed.connect(_on_change, dispatch_uid="billing.invoicing.changed")


def _on_payment(
    sender: object, organization_id: str, payment_id: str, now: datetime, **_: Any
) -> None:
    settle(organization_id, now=now, cause="payment", payment_id=payment_id)


def _on_change(sender: object, organization_ids: Collection[str], now: datetime, **_: Any) -> None:
    """Only those who have invoices have any to settle."""
    invoiced = Invoice.objects.filter(organization_id__in=organization_ids)
    for organization_id in sorted(set(invoiced.values_list("organization_id", flat=True))):
        settle(organization_id, now=now)
