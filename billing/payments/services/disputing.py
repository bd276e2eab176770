"""A customer's bank asks a payment back. While the money is withdrawn, the credit bought with it is
gone too, or owed where it is spent; a dispute that is won gives it back."""

from datetime import UTC, datetime

import stripe
from django.db import transaction

from billing.credit.services.reversals import give_back, take_back
from billing.ledger.models import Cause
from billing.payments.models import Dispute, PaymentStatus, StripePayment
from billing.payments.selectors import dispute as dispute_by_id
from billing.payments.selectors import locked_payment, nanos, payment_of_intent
from billing.payments.services.shares import credit_in_part
from billing.payments.signals import dispute_changed
from control.alarms.count import raise_alarm_on_commit
from control.audit import services as audit
from control.permissions import Actor
from serving.contract.money import exact_dollars

OVER = ("won", "lost", "warning_closed", "prevented")


@transaction.atomic
def apply_dispute(said: stripe.Dispute, *, now: datetime) -> Dispute | None:
    """Bring a dispute as it was just fetched into our books; None where it is none of ours, or of
    a payment that has not come in."""
    payment_id = payment_of_intent(_intent_id(said) or "", None, lock=True)
    if payment_id is None:
        return None
    payment = locked_payment(payment_id)
    if payment.status != PaymentStatus.SUCCEEDED or said.currency != "usd":
        return None
    dispute = dispute_by_id(said.id) or _opened(said, payment, now=now)
    moved = [each.amount for each in said.balance_transactions or []]
    changed = dispute.closed_at is None and dispute.status != said.status
    if any(cents < 0 for cents in moved) and dispute.withdrawn_at is None:
        _withdraw(dispute, now=now)
        changed = True
    if dispute.withdrawn_at and sum(moved) >= 0 and dispute.reinstated_at is None:
        _reinstate(dispute, now=now)
        changed = True
    if dispute.closed_at is None:
        dispute.status = said.status
        dispute.closed_at = now if said.status in OVER else None
    dispute.save()
    if changed:
        dispute_changed.send(sender=Dispute, dispute=dispute, now=now)
    return dispute


def _opened(said: stripe.Dispute, payment: StripePayment, *, now: datetime) -> Dispute:
    due_by = getattr(said.evidence_details, "due_by", None)
    dispute = Dispute.objects.create(
        stripe_id=said.id,
        organization_id=payment.organization_id,
        mode=payment.mode,
        payment=payment,
        amount_cents=said.amount,
        reason=said.reason[:64],
        status="",
        due_by=datetime.fromtimestamp(due_by, UTC) if due_by else None,
        opened_at=now,
    )
    _record("dispute.open", dispute)
    raise_alarm_on_commit(dispute.organization_id, "payment_disputed", now=now)
    return dispute


def _withdraw(dispute: Dispute, *, now: datetime) -> None:
    payment = dispute.payment
    taken = min(dispute.amount_cents, payment.total_cents)
    dispute.taken_cents = credit_in_part(payment, taken)
    dispute.taken_tax_cents = taken - dispute.taken_cents
    dispute.withdrawn_at = now
    take_back(
        organization_id=dispute.organization_id,
        amount_nanos=nanos(dispute.taken_cents),
        tax_nanos=nanos(dispute.taken_tax_cents),
        cause=Cause.DISPUTE,
        key=dispute.stripe_id,
        actor=Actor.for_system("stripe"),
        now=now,
    )
    _record("dispute.withdraw", dispute)


def _reinstate(dispute: Dispute, *, now: datetime) -> None:
    dispute.reinstated_at = now
    give_back(
        organization_id=dispute.organization_id,
        amount_nanos=nanos(dispute.taken_cents),
        tax_nanos=nanos(dispute.taken_tax_cents),
        cause=Cause.DISPUTE_REVERSAL,
        key=dispute.stripe_id,
        actor=Actor.for_system("stripe"),
        now=now,
    )
    _record("dispute.reinstate", dispute)


def _intent_id(said: stripe.Dispute) -> str | None:
    intent = said.payment_intent
    return intent if isinstance(intent, str) or intent is None else intent.id


def _record(action: str, dispute: Dispute) -> None:
    audit.record(
        actor=Actor.for_system("stripe"),
        action=action,
        target_kind="dispute",
        target_id=dispute.stripe_id,
        target_name=exact_dollars(nanos(dispute.amount_cents)),
        organization_id=dispute.organization_id,
        details={"amount_cents": dispute.amount_cents, "taken_cents": dispute.taken_cents},
    )
