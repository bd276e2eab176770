"""Taking the credit of a refund: at once where it is free, else once gateways gave back what they
hold of it. A refund whose credit was spent meanwhile is not made."""

from datetime import datetime

from django.db import transaction

from billing.credit.services.adjustments import HeldByGateways, recall_held
from billing.credit.services.adjustments import refund as refund_credit
from billing.payments.models import Refund, RefundStatus
from billing.payments.models.payments import WORDS_MAX
from billing.payments.selectors import locked_payment, nanos, refund_by_id
from control.audit import services as audit
from control.errors import Conflict
from control.permissions import Actor
from serving.contract.money import exact_dollars


class StillHeldError(Exception):
    """Gateways have not given the credit back yet."""


def take_credit(refund: Refund, actor: Actor, now: datetime) -> bool:
    """Take a refund's credit, and its tax, or call it back from gateways; return whether it is
    taken. Raises Conflict where it is not there any more."""
    try:
        refund_credit(
            organization_id=refund.organization_id,
            amount_nanos=nanos(refund.amount_cents),
            tax_nanos=nanos(refund.tax_cents),
            idempotency_key=f"stripe:{refund.id}",
            actor=actor,
            reason=refund.reason,
            now=now,
        )
    except HeldByGateways:
        recall_held(refund.organization_id, now=now)
        return False
    return True


def take_freed(refund_id: str, *, now: datetime) -> Refund:
    """Return a refund, the credit that it waited for taken, or itself given up. Raises
    StillHeldError."""
    refund = refund_by_id(refund_id)
    if refund.status == RefundStatus.WAITING:
        refund = _look_again(refund, now=now)
        if refund.status == RefundStatus.WAITING:
            raise StillHeldError
    return refund


@transaction.atomic
def _look_again(refund: Refund, *, now: datetime) -> Refund:
    payment = locked_payment(refund.payment_id)
    refund = refund_by_id(refund.id)
    if refund.status != RefundStatus.WAITING:
        return refund
    try:
        if payment.disputes.filter(closed_at__isnull=True).exists():
            raise Conflict("The payment has been disputed since.")
        if not take_credit(refund, Actor.for_system("stripe"), now):
            return refund
        refund.status = RefundStatus.CREATED
    except Conflict as refused:
        refund.status, refund.settled_at = RefundStatus.FAILED, now
        refund.failure_words = refused.message[:WORDS_MAX]
    refund.save()
    record(
        Actor.for_system("stripe"),
        f"refund.{refund.status}",
        refund,
        words=refund.failure_words[:200],
    )
    return refund


def record(actor: Actor, action: str, refund: Refund, **details: str) -> None:
    """Note what became of a refund."""
    audit.record(
        actor=actor,
        action=action,
        target_kind="refund",
        target_id=refund.id,
        target_name=exact_dollars(nanos(refund.total_cents)),
        organization_id=refund.organization_id,
        details={"total_cents": refund.total_cents, **details},
    )
