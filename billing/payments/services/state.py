"""The states of a payment: only ever forward, each with its effect on credit and on automatic
top-ups. It uses no other service of payments."""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from billing.credit.services.payments import record_payment
from billing.payments.errors import REFUSED, Declined
from billing.payments.models import (
    FINAL,
    RANK,
    AutoTopUp,
    PaymentStatus,
    Purpose,
    StripePayment,
)
from billing.payments.models.payments import WORDS_MAX
from billing.payments.selectors import booking_key, locked_payment, nanos
from billing.payments.signals import payment_failed, payment_succeeded, top_up_stopped
from control.audit import services as audit
from control.organizations.selectors import organization_name
from control.permissions import Actor

REFUSED_CODE = "refused"
"""Why a payment ended that Stripe did not even take the question for."""
DECLINES_MAX = 2


@dataclass(frozen=True, slots=True)
class News:
    """What is known of a payment now."""

    status: PaymentStatus
    intent_id: str | None = None
    method_id: str | None = None
    action_url: str = ""
    receipt_url: str = ""
    failure_code: str = ""
    failure_words: str = ""
    stripe_words: str = ""


@transaction.atomic
def fail(payment_id: str, declined: Declined, *, now: datetime) -> StripePayment:
    """A payment was declined, and Stripe keeps nothing of it."""
    news = News(
        PaymentStatus.FAILED,
        failure_code=declined.code,
        failure_words=declined.words,
        stripe_words=declined.stripe_words,
    )
    return advance(locked_payment(payment_id), news, now=now)


@transaction.atomic
def give_up(payment_id: str, words: str, *, now: datetime) -> StripePayment:
    """Stop asking for a payment that Stripe does not know."""
    news = News(PaymentStatus.CANCELED, failure_words=words)
    return advance(locked_payment(payment_id), news, now=now)


@transaction.atomic
def refuse(payment_id: str, stripe_words: str, *, now: datetime) -> StripePayment:
    """Stop asking for a payment that Stripe refuses while the customer waits for its page."""
    news = News(
        PaymentStatus.CANCELED,
        failure_code=REFUSED_CODE,
        failure_words=REFUSED,
        stripe_words=stripe_words,
    )
    return advance(locked_payment(payment_id), news, now=now)


def advance(payment: StripePayment, news: News, *, now: datetime) -> StripePayment:
    """Move a locked payment on to what is known now; nothing where that is no step forward."""
    if payment.status == PaymentStatus.SUCCEEDED:
        return payment
    payment.looked_at = now
    payment.intent_id = payment.intent_id or news.intent_id
    if RANK[news.status] <= RANK[payment.status]:
        payment.save(update_fields=["intent_id", "looked_at"])
        return payment
    payment.status = news.status
    payment.method_id = payment.method_id or news.method_id
    payment.action_url = news.action_url
    payment.receipt_url = news.receipt_url
    payment.failure_code = news.failure_code[:64]
    payment.failure_words = news.failure_words[:WORDS_MAX]
    payment.stripe_words = news.stripe_words[:WORDS_MAX]
    payment.settled_at = now if news.status in FINAL else None
    if news.status == PaymentStatus.SUCCEEDED:
        payment.payment_id = _book(payment, now=now)
    payment.save()
    _tell(payment, now=now)
    return payment


def _book(payment: StripePayment, *, now: datetime) -> str:
    """Record the money in the books; return the payment's id there."""
    method = f", {payment.method}" if payment.method else ""
    booked = record_payment(
        organization_id=payment.organization_id,
        amount_nanos=nanos(payment.total_cents),
        tax_nanos=nanos(payment.tax_cents),
        idempotency_key=booking_key(payment.id),
        actor=Actor.for_system("stripe"),
        reason=f"{payment.get_purpose_display()}{method}",
        now=now,
    )
    return booked.id


def _tell(payment: StripePayment, *, now: datetime) -> None:
    audit.record(
        actor=Actor.for_system("stripe"),
        action=f"payment.{payment.status}",
        target_kind="stripe_payment",
        target_id=payment.id,
        target_name=str(payment.get_purpose_display()),
        organization_id=payment.organization_id,
        details={"total_cents": payment.total_cents, "why": payment.failure_code},
    )
    if payment.status == PaymentStatus.SUCCEEDED:
        if payment.purpose == Purpose.AUTOMATIC:
            _forget_declines(payment.organization_id)
        payment_succeeded.send(sender=StripePayment, payment=payment, now=now)
    if payment.status == PaymentStatus.FAILED:
        if payment.purpose == Purpose.AUTOMATIC:
            _count_decline(payment.organization_id, now=now)
        payment_failed.send(sender=StripePayment, payment=payment, now=now)


def _forget_declines(organization_id: str) -> None:
    AutoTopUp.objects.filter(organization_id=organization_id).update(decline_count=0)


def _count_decline(organization_id: str, *, now: datetime) -> None:
    """Count a decline of an automatic top-up; the second in a row stops them."""
    rows = AutoTopUp.objects.select_for_update()
    settings = rows.filter(organization_id=organization_id).first()
    if settings is None:
        return
    settings.decline_count += 1
    if settings.decline_count >= DECLINES_MAX and settings.stopped_at is None:
        settings.stopped_at = now
        audit.record(
            actor=Actor.for_system("stripe"),
            action="auto_top_up.stop",
            target_kind="organization",
            target_id=organization_id,
            target_name=organization_name(organization_id),
            organization_id=organization_id,
            details={"declines": settings.decline_count},
        )
        top_up_stopped.send(sender=AutoTopUp, settings=settings, now=now)
    settings.save(update_fields=["decline_count", "stopped_at"])
