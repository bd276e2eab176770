"""Paying back to the card or account that a payment came from. The credit goes in the transaction
that decides it, or waits to be free of gateways (`freeing.py`); the outbox asks Stripe, and a
refund that comes back gives the credit again."""

from contextlib import suppress
from datetime import datetime

import stripe
import structlog
from django.db import transaction
from stripe.params import RefundCreateParams

from billing.credit.services.reversals import give_back, take_back
from billing.ledger.causes import Cause
from billing.payments.errors import Declined, NotThere, StripeAway, StripeRefused
from billing.payments.models import PaymentStatus, Refund, RefundStatus, StripePayment
from billing.payments.models.payments import KEY_MAX, WORDS_MAX
from billing.payments.selectors import (
    locked_payment,
    nanos,
    payment_by_id,
    payment_of_intent,
    refund_by_id,
    refund_by_key,
    refund_of_stripe,
    refunds_of,
    taken_cents,
)
from billing.payments.services.freeing import record, take_credit, take_freed
from billing.payments.services.shares import credit_in_part, tax_of_part
from billing.payments.signals import payment_returned
from billing.payments.stripe_api import ORGANIZATION, StripeApi, named_in, stripe_api, stripe_mode
from control.errors import Conflict, InvalidValue
from control.outbox.services import enqueue
from control.permissions import Actor, Permission, require_operator
from serving.contract.money import exact_dollars

PAY_BACK = "stripe.refund"
"""The outbox's word for asking Stripe for a refund."""
REFUND = "penstock_refund"
WAITING = RefundStatus.WAITING
RANK = {status: rank for rank, status in enumerate(RefundStatus.values)}
MEANS = {
    "pending": RefundStatus.PENDING,
    "requires_action": RefundStatus.PENDING,
    "succeeded": RefundStatus.SUCCEEDED,
    "failed": RefundStatus.FAILED,
    "canceled": RefundStatus.FAILED,
}
"""Stripe's words for a refund."""

logger = structlog.get_logger(__name__)


@transaction.atomic
def refund_payment(
    *,
    payment_id: str,
    amount_cents: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
) -> Refund:
    """Pay credit of a payment back to where it came from, with its share of the tax.

    Never more than is left of the payment and of the paid credit; what of that gateways hold is
    called back, and the refund waits for it. A repeat returns the first refund. Raises NoStripe,
    NotPermitted, ObjectNotFound, InvalidValue, Conflict.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    mode = stripe_mode()
    payment = locked_payment(payment_id)
    before = refund_by_key(payment.organization_id, idempotency_key)
    if before is not None:
        return _the_same(before, payment, amount_cents)
    _check(payment, amount_cents, idempotency_key, mode)
    tax_cents = tax_of_part(payment, amount_cents)
    refund = Refund(
        organization_id=payment.organization_id,
        mode=mode,
        payment=payment,
        amount_cents=amount_cents,
        tax_cents=tax_cents,
        idempotency_key=idempotency_key,
        reason=reason,
        requested_by=actor.name,
        created_at=now,
    )
    refund.status = RefundStatus.CREATED if take_credit(refund, actor, now) else WAITING
    refund.save(force_insert=True)
    enqueue(
        kind=PAY_BACK,
        key=refund.id,
        payload={},
        organization_id=refund.organization_id,
        now=now,
    )
    record(actor, "refund.ask", refund, reason=reason)
    return refund


def pay_back(refund_id: str, *, now: datetime) -> None:
    """Have a refund made at Stripe, or find what became of it; at most once. Raises StripeAway, and
    StillHeldError while gateways hold its credit."""
    refund = take_freed(refund_id, now=now)
    if refund.status not in (RefundStatus.CREATED, RefundStatus.FAILED):
        return
    api = stripe_api()
    if api.keys.mode != refund.mode:
        raise StripeAway(f"asked for in {refund.mode} mode")
    if refund.status == RefundStatus.CREATED:
        refund = _ask(api, refund, now=now)
    if refund.status == RefundStatus.FAILED:
        _look_beside(api, refund, now=now)


@transaction.atomic
def apply_refund(made: stripe.Refund, *, now: datetime) -> Refund | None:
    """Bring a refund as it was just fetched into our books; None where it is none of ours.

    One that was made at Stripe and not here takes its credit now; where that is spent, it is owed.
    """
    named = named_in(made.metadata, REFUND)
    payment_id = payment_of_intent(_intent_id(made) or "", None, lock=True)
    refund = refund_of_stripe(made.id, named)
    if refund is None:
        if payment_id is None or made.status in ("failed", "canceled"):
            return None
        refund = _made_elsewhere(locked_payment(payment_id), made, now=now)
        if refund is None:
            return None
    elif made.amount != refund.total_cents or payment_id != refund.payment_id:
        return None  # its gap is found by reconciling
    return _advance(refund, MEANS.get(made.status or "", RefundStatus.PENDING), made, now=now)


@transaction.atomic
def come_back(refund_id: str, words: str, *, now: datetime) -> Refund:
    """A refund that Stripe does not make: the credit is the customer's again."""
    locked_payment(refund_by_id(refund_id).payment_id)
    refund = refund_by_id(refund_id)
    if refund.status != RefundStatus.FAILED:
        _end(refund, RefundStatus.FAILED, words, now=now)
    return refund


def _ask(api: StripeApi, refund: Refund, *, now: datetime) -> Refund:
    made = None
    if Refund.objects.filter(id=refund.id, asked_at__isnull=True).update(asked_at=now) == 0:
        made = _made_before(api, refund)
    try:
        if made is None:
            made = api.create_refund(_question(refund), key=f"refund:{refund.id}")
    except (StripeRefused, Declined, NotThere) as refused:
        logger.error("refund_refused", refund_id=refund.id, why=str(refused))
        return come_back(refund.id, str(refused), now=now)
    return apply_refund(made, now=now) or refund


def _look_beside(api: StripeApi, failed: Refund, *, now: datetime) -> None:
    """Look at what was paid back of the payment at Stripe: beside a refund that was still to be
    asked for there was no room for it, and whoever told of it tells no more."""
    with suppress(NotThere, StripeRefused):
        for made in list(api.refunds_of(failed.payment.intent_id or "")):
            apply_refund(made, now=now)


def _advance(refund: Refund, status: RefundStatus, made: stripe.Refund, *, now: datetime) -> Refund:
    refund.looked_at = now
    refund.stripe_id = made.id
    if RANK[status] > RANK[refund.status]:
        _end(refund, status, getattr(made, "failure_reason", None) or "", now=now)
    else:
        refund.save(update_fields=["looked_at", "stripe_id"])
    return refund


def _end(refund: Refund, status: RefundStatus, words: str, *, now: datetime) -> None:
    refund.status = status
    refund.failure_words = words[:WORDS_MAX]
    refund.settled_at = None if status == RefundStatus.PENDING else now
    refund.save()
    if status == RefundStatus.FAILED:
        give_back(
            organization_id=refund.organization_id,
            amount_nanos=nanos(refund.amount_cents),
            tax_nanos=nanos(refund.tax_cents),
            cause=Cause.REFUND_REVERSAL,
            key=refund.id,
            actor=Actor.for_system("stripe"),
            now=now,
        )
    record(Actor.for_system("stripe"), f"refund.{status}", refund, words=words[:200])


def _made_elsewhere(payment: StripePayment, made: stripe.Refund, *, now: datetime) -> Refund | None:
    if payment.status != PaymentStatus.SUCCEEDED:
        return None
    left_cents = payment.total_cents - sum(each.total_cents for each in refunds_of(payment.id))
    if made.currency != "usd" or made.amount > left_cents:
        return None
    tax_cents = made.amount - credit_in_part(payment, made.amount)
    refund = Refund.objects.create(
        organization_id=payment.organization_id,
        mode=payment.mode,
        payment=payment,
        amount_cents=made.amount - tax_cents,
        tax_cents=tax_cents,
        stripe_id=made.id,
        idempotency_key=f"stripe:{made.id}"[:KEY_MAX],
        reason="Made at Stripe",
        requested_by="Stripe",
        created_at=now,
        asked_at=now,
    )
    take_back(
        organization_id=payment.organization_id,
        amount_nanos=nanos(refund.amount_cents),
        tax_nanos=nanos(tax_cents),
        cause=Cause.REFUND,
        key=f"stripe:{made.id}",
        actor=Actor.for_system("stripe"),
        now=now,
    )
    record(Actor.for_system("stripe"), "refund.elsewhere", refund, words="")
    payment_returned.send(sender=Refund, refund=refund, now=now)
    return refund


def _check(payment: StripePayment, amount_cents: int, key: str, mode: str) -> None:
    if not 0 < len(key) <= KEY_MAX:
        message = f"idempotency_key has {len(key)} characters; wanted 1 to {KEY_MAX}."
        raise InvalidValue(message, param="idempotency_key")
    if amount_cents <= 0:
        raise InvalidValue(
            f"amount_cents is {amount_cents}; wanted more than 0.", param="amount_cents"
        )
    if payment.status != PaymentStatus.SUCCEEDED or payment.mode != mode:
        raise Conflict("Only a payment that succeeded can be refunded.")
    if payment.disputes.filter(closed_at__isnull=True).exists():
        raise Conflict("The payment is disputed. If the dispute is lost, Stripe refunds it.")
    left = payment.amount_cents - taken_cents(payment.id)
    if amount_cents > left:
        words = f"Only {exact_dollars(nanos(max(left, 0)))} of this payment is left."
        raise Conflict(words, param="amount_cents")


def _the_same(before: Refund, payment: StripePayment, amount_cents: int) -> Refund:
    if (before.payment_id, before.amount_cents) != (payment.id, amount_cents):
        raise Conflict(
            f"{before.idempotency_key!r} was already used for another refund.",
            param="idempotency_key",
            code="idempotency_conflict",
        )
    return before


def _made_before(api: StripeApi, refund: Refund) -> stripe.Refund | None:
    for made in api.refunds_of(refund.payment.intent_id or ""):
        if named_in(made.metadata, REFUND) == refund.id:
            return made
    return None


def _question(refund: Refund) -> RefundCreateParams:
    return {
        "payment_intent": refund.payment.intent_id or "",
        "amount": refund.total_cents,
        "reason": "requested_by_customer",
        "metadata": {REFUND: refund.id, ORGANIZATION: refund.organization_id},
    }


def _intent_id(made: stripe.Refund) -> str | None:
    intent = made.payment_intent
    return intent if isinstance(intent, str) or intent is None else intent.id


def refundable_cents(payment_id: str) -> int:
    """Return what of a payment could still be paid back, tax aside, were its credit all there."""
    return max(payment_by_id(payment_id).amount_cents - taken_cents(payment_id), 0)
