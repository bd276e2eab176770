"""What people are told of payments, by mail and webhook, once each."""

from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext

from billing.credit.selectors import owed_nanos
from billing.invoicing.selectors import invoice_by_id
from billing.payments.models import AutoTopUp, Dispute, Purpose, Refund, StripePayment
from billing.payments.selectors import nanos
from billing.payments.signals import (
    dispute_changed,
    payment_failed,
    payment_returned,
    payment_succeeded,
    top_up_stopped,
)
from control.mail.services import absolute, send_mail
from control.organizations.selectors import notification_recipients, organizations
from control.webhooks.services import send_event
from serving.contract.money import format_dollars

WATCHED = timedelta(minutes=10)
"""For how long who topped up by hand is taken to look at what becomes of it."""


def listen() -> None:
    """Tell people from now on."""
    payment_succeeded.connect(_on_succeeded, dispatch_uid="billing.payments.succeeded")
    payment_failed.connect(_on_failed, dispatch_uid="billing.payments.failed")
    payment_returned.connect(_on_returned, dispatch_uid="billing.payments.returned")
    top_up_stopped.connect(_on_stopped, dispatch_uid="billing.payments.stopped")
    dispute_changed.connect(_on_dispute, dispatch_uid="billing.payments.dispute")


def _on_succeeded(sender: object, payment: StripePayment, now: datetime, **_: Any) -> None:
    """By webhook and mail of every payment, so that no saved method is charged in silence."""
    _emit("payment.succeeded", payment, {"receipt_url": payment.receipt_url or None}, now=now)
    total = format_dollars(nanos(payment.total_cents))
    lines = [[_paid_for(payment), format_dollars(nanos(payment.amount_cents)), ""]]
    if payment.tax_cents:
        lines.append([gettext("Tax"), format_dollars(nanos(payment.tax_cents)), ""])
    context = {
        "amount": total,
        "method": str(payment.method or ""),
        "totals": [*lines, [gettext("Total"), total, "strong"]],
        "payment": payment.id,
        "receipt_url": payment.receipt_url,
    }
    key = f"succeeded:{payment.id}"
    _tell("payment_succeeded", payment.organization_id, context, key, now)


def _on_failed(sender: object, payment: StripePayment, now: datetime, **_: Any) -> None:
    """By webhook of every payment; by mail of automatic top-ups, and of those by hand that come
    back when nobody looks any more, as a bank's debit does. Invoices have mails of their own."""
    failure = {"failure_code": payment.failure_code, "failure_message": payment.failure_words}
    _emit("payment.failed", payment, failure, now=now)
    if payment.purpose == Purpose.TOP_UP and now - payment.created_at > WATCHED:
        tell_bounced(payment, now=now)
    if payment.purpose != Purpose.AUTOMATIC:
        return
    context = {
        "amount": format_dollars(nanos(payment.total_cents)),
        "method": str(payment.method or gettext("the saved payment method")),
        "why": payment.failure_words,
    }
    _tell("top_up_declined", payment.organization_id, context, f"declined:{payment.id}", now)


def tell_bounced(payment: StripePayment, *, now: datetime) -> None:
    """Tell that a payment did not come through after all, and what is owed by now."""
    context = {
        "amount": format_dollars(nanos(payment.total_cents)),
        "is_bounced": True,
        "method": str(payment.method or "Stripe"),
        "why": payment.failure_words,
    }
    key = f"bounced:{payment.id}"
    _tell("payment_returned", payment.organization_id, context, key, now)


def _on_returned(sender: object, refund: Refund, now: datetime, **_: Any) -> None:
    """Nobody here asked for it: what was spent of the credit is owed."""
    context = {
        "amount": format_dollars(nanos(refund.total_cents)),
        "is_bounced": False,
        "payment": refund.payment_id,
    }
    key = f"returned:{refund.id}"
    _tell("payment_returned", refund.organization_id, context, key, now)


def _on_stopped(sender: object, settings: AutoTopUp, now: datetime, **_: Any) -> None:
    key = f"stopped:{settings.organization_id}:{now.isoformat()}"
    _tell("top_up_stopped", settings.organization_id, {}, key, now)


def _on_dispute(sender: object, dispute: Dispute, now: datetime, **_: Any) -> None:
    """Once when the credit is taken, once when it is given back."""
    is_taken = dispute.withdrawn_at == now and dispute.reinstated_at is None
    if not is_taken and dispute.reinstated_at != now:
        return
    context = {
        "amount": format_dollars(nanos(dispute.taken_cents)),
        "payment": dispute.payment_id,
        "is_taken": is_taken,
    }
    key = f"dispute:{dispute.stripe_id}:{'taken' if is_taken else 'given'}"
    _tell("dispute", dispute.organization_id, context, key, now)


def _paid_for(payment: StripePayment) -> str:
    if payment.purpose != Purpose.INVOICE:
        return payment.get_purpose_display()
    return gettext("Invoice %(number)s") % {"number": invoice_by_id(payment.invoice_id).number}


def _emit(event_type: str, payment: StripePayment, more: dict[str, Any], *, now: datetime) -> None:
    data = {
        "payment_id": payment.id,
        "purpose": payment.purpose,
        "invoice_id": payment.invoice_id or None,
        "amount_cents": payment.amount_cents,
        "tax_cents": payment.tax_cents,
        "total_cents": payment.total_cents,
        "currency": "usd",
        "payment_method_id": payment.method_id,
        "last4": payment.method.last4 if payment.method else None,
        **more,
    }
    send_event(
        organization_id=payment.organization_id,
        event_type=event_type,
        data=data,
        key=payment.id,
        now=now,
    )


def _tell(
    template: str, organization_id: str, context: dict[str, Any], key: str, now: datetime
) -> None:
    name = organizations().get(pk=organization_id).name
    owed = max(owed_nanos(organization_id), 0)
    send_mail(
        template=template,
        to=notification_recipients(organization_id),
        context={
            "organization": name,
            "billing_url": absolute(f"/{organization_id}/billing"),
            "owed": format_dollars(owed) if owed else "",
            **context,
        },
        key=key,
        organization_id=organization_id,
        now=now,
    )
