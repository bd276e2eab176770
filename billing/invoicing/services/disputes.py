"""Invoices that somebody does not accept for now: nobody is dunned for them meanwhile."""

from datetime import datetime

from django.db import transaction

from billing.invoicing.models import Dispute
from billing.invoicing.selectors import invoice_by_id
from control.audit import services as audit
from control.permissions import Actor, Permission, require_operator


@transaction.atomic
def open_dispute(*, invoice_id: str, key: str, actor: Actor, reason: str, now: datetime) -> Dispute:
    """Note that an invoice is disputed, once per key. Raises NotPermitted, ObjectNotFound."""
    require_operator(actor, Permission.FINANCE_WRITE)
    invoice = invoice_by_id(invoice_id)
    dispute, is_new = Dispute.objects.get_or_create(
        invoice=invoice,
        key=key,
        defaults={
            "organization_id": invoice.organization_id,
            "reason": reason,
            "opened_at": now,
        },
    )
    if is_new:
        _record(dispute, actor, "invoice.dispute", reason)
    return dispute


@transaction.atomic
def close_dispute(
    *, invoice_id: str, key: str, actor: Actor, now: datetime, reason: str = ""
) -> None:
    """Note that a dispute ended, and why where somebody says so. Raises NotPermitted,
    ObjectNotFound."""
    require_operator(actor, Permission.FINANCE_WRITE)
    invoice = invoice_by_id(invoice_id)
    rows = Dispute.objects.select_for_update().filter(
        invoice=invoice, key=key, closed_at__isnull=True
    )
    for dispute in rows:
        dispute.closed_at = now
        dispute.save(update_fields=["closed_at"])
        _record(dispute, actor, "invoice.end_dispute", reason)


def _record(dispute: Dispute, actor: Actor, action: str, reason: str) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="invoice",
        target_id=dispute.invoice_id,
        target_name=dispute.invoice.number,
        organization_id=dispute.organization_id,
        details={"key": dispute.key, "reason": reason},
    )
