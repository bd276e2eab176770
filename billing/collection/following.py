"""What the rooms below tell, in their transactions: invoices issued, payments come and declined,
debts changed, disputes. A payment that pays what is overdue reinstates in its own transaction."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models.signals import post_save

from billing.collection import selectors
from billing.collection.models import Case
from billing.collection.schedule import moment
from billing.collection.services import telling
from billing.collection.services.look import Look
from billing.collection.services.looking import wake
from billing.collection.services.steps import close, plan, save
from billing.credit.signals import payment_recorded, receivables_changed
from billing.invoicing.models import Dispute, Invoice
from billing.payments.models import Purpose, StripePayment
from billing.payments.signals import dispute_changed, payment_failed
from billing.payments.telling import tell_bounced
from control.db.models import new_id
from control.organizations.models import Organization
from control.outbox.services import enqueue

LOOK = "collection.look"
"""The outbox's word for looking at an organization at once."""


def listen() -> None:
    """Follow all of it from now on."""
    post_save.connect(_on_invoice, sender=Invoice, dispatch_uid="billing.collection.invoice")
    post_save.connect(_on_dispute, sender=Dispute, dispatch_uid="billing.collection.dispute")
    payment_recorded.connect(_on_payment, dispatch_uid="billing.collection.payment")
    receivables_changed.connect(_on_change, dispatch_uid="billing.collection.changed")
    payment_failed.connect(_on_failed, dispatch_uid="billing.collection.failed")
    dispute_changed.connect(_on_asked_back, dispatch_uid="billing.collection.asked_back")


def look_soon(organization_id: str, *, now: datetime) -> None:
    """Have an organization looked at as soon as the transaction has committed."""
    wake(organization_id, now=now)
    key = new_id("look")
    enqueue(kind=LOOK, key=key, payload={}, organization_id=organization_id, now=now)


def _on_invoice(sender: object, instance: Invoice, created: bool, **_: Any) -> None:
    if created and instance.total_cents:
        wake(instance.organization_id, now=moment(instance.due_on, 0))


def _on_dispute(sender: object, instance: Dispute, **_: Any) -> None:
    look_soon(instance.organization_id, now=instance.closed_at or instance.opened_at)


def _on_asked_back(sender: object, dispute: Any, now: datetime, **_: Any) -> None:
    look_soon(dispute.organization_id, now=now)


def _on_change(sender: object, organization_ids: Collection[str], now: datetime, **_: Any) -> None:
    """Only those who were invoiced have a case."""
    for case in Case.objects.filter(organization_id__in=organization_ids).order_by("pk"):
        (look_soon if case.is_open else wake)(case.pk, now=now)


def _on_payment(sender: object, organization_id: str, now: datetime, **_: Any) -> None:
    """The balance is locked, and the invoices are settled by it already."""
    case = selectors.locked_case(organization_id)
    if case is None or not case.is_open:
        return
    organization = organization_unless_held(organization_id)
    if organization is not None:
        owed = selectors.debt(organization_id, now)
        look = Look(case, organization, owed, selectors.settings(), now)
        if not look.is_owing:
            close(look)
            return
    look_soon(organization_id, now=now)


def organization_unless_held(organization_id: str) -> Organization | None:
    """Return an organization, locked; None where somebody holds it, who may be waiting for the
    balance that we hold. The outbox reinstates then, a moment after the payment."""
    rows = Organization.objects.select_for_update(no_key=True, skip_locked=True)
    return rows.filter(id=organization_id).first()


def _on_failed(sender: object, payment: StripePayment, now: datetime, **_: Any) -> None:
    """Who is told that a charge failed has a day before anything follows."""
    case = selectors.locked_case(payment.organization_id)
    if payment.purpose != Purpose.INVOICE:
        return
    if case is None or not case.is_open:  # nothing is overdue, and nobody has told so
        tell_bounced(payment, now=now)
        return
    case.not_before = now.date() + timedelta(days=1)
    case.waits_for = ""
    owed = selectors.debt(payment.organization_id, now)
    look = Look(case, case.organization, owed, selectors.settings(), now)
    if look.is_owing:
        plan(look)
        telling.payment_failed(look, payment)
    save(look)
