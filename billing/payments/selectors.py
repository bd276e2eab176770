"""Questions about payments; an organization's come with the organization first."""

from collections.abc import Collection
from datetime import datetime

from django.db.models import F, Q, QuerySet, Sum

from billing.credit.selectors import payment_by_key as booked_by_key
from billing.payments.models import (
    OPEN,
    AutoTopUp,
    Dispute,
    Gap,
    PaymentMethod,
    PaymentStatus,
    PromotionalCode,
    Purpose,
    Reconciliation,
    Redemption,
    Refund,
    RefundStatus,
    StripeCustomer,
    StripeEvent,
    StripePayment,
)
from billing.payments.models.payments import NANOS_PER_CENT
from control.errors import ObjectNotFound

TAKES_UP = (*OPEN, PaymentStatus.SUCCEEDED)
"""What counts towards a month's cap: what was paid, and what may still be."""
LONGEST_AGO = F("looked_at").asc(nulls_first=True)
"""What nobody has looked at comes first."""


def payments(organization_id: str, mode: str) -> QuerySet[StripePayment]:
    """Return an organization's payments through Stripe, newest first."""
    mine = StripePayment.objects.filter(organization_id=organization_id, mode=mode)
    return mine.select_related("method").order_by("-created_at", "id")


def top_ups(organization_id: str, mode: str) -> QuerySet[StripePayment]:
    """Return an organization's top-ups, automatic ones too, newest first."""
    return payments(organization_id, mode).exclude(purpose=Purpose.INVOICE)


def payment(organization_id: str, mode: str, payment_id: str) -> StripePayment:
    """Return one payment. Raises ObjectNotFound."""
    found = payments(organization_id, mode).filter(id=payment_id).first()
    if found is None:
        raise ObjectNotFound("There is no such payment.")
    return found


def payment_by_id(payment_id: str) -> StripePayment:
    """Return a payment of any organization. Raises ObjectNotFound."""
    found = StripePayment.objects.select_related("method").filter(id=payment_id).first()
    if found is None:
        raise ObjectNotFound("There is no such payment.")
    return found


def payment_like(wanted: StripePayment) -> StripePayment | None:
    """Return the payment that was asked for before with a wish's key, for its purpose."""
    mine = payments(wanted.organization_id, wanted.mode).filter(purpose=wanted.purpose)
    return mine.filter(idempotency_key=wanted.idempotency_key).first()


def payment_of_invoice(invoice_id: str, mode: str) -> StripePayment | None:
    """Return the payment of an invoice that is under way."""
    rows = StripePayment.objects.filter(invoice_id=invoice_id, mode=mode, purpose=Purpose.INVOICE)
    return rows.filter(status__in=OPEN).first()


def tries_of_invoice(invoice_id: str, mode: str) -> int:
    """Return how often an invoice was asked for and that came to an end."""
    rows = StripePayment.objects.filter(invoice_id=invoice_id, mode=mode, purpose=Purpose.INVOICE)
    return rows.exclude(status__in=OPEN).count()


def payment_of_intent(intent_id: str, named: str | None, *, lock: bool = False) -> str | None:
    """Return the id of the payment that an intent of Stripe's belongs to: by what its metadata
    names, or by the intent's own id; locked where wanted."""
    rows = StripePayment.objects.filter(Q(intent_id=intent_id) | Q(id=named or ""))
    rows = rows.order_by("id")
    found = (rows.select_for_update() if lock else rows).values_list("id", flat=True)
    return next(iter(found), None)


def is_paid(**named: str) -> bool:
    """Tell whether the payment of an intent, or of a page of Stripe's, came in."""
    return StripePayment.objects.filter(status=PaymentStatus.SUCCEEDED, **named).exists()


def locked_payment(payment_id: str) -> StripePayment:
    """Return a payment, locked until the transaction ends. Raises ObjectNotFound."""
    rows = StripePayment.objects.select_for_update(of=("self",)).filter(id=payment_id)
    found = rows.first()
    if found is None:
        raise ObjectNotFound("There is no such payment.")
    return found


def open_payments(mode: str, looked_before: datetime, limit: int) -> list[StripePayment]:
    """Return payments that nobody has asked Stripe about for a while."""
    waiting = StripePayment.objects.filter(mode=mode, status__in=OPEN)
    due = waiting.filter(Q(looked_at__lt=looked_before) | Q(looked_at__isnull=True))
    return list(due.filter(created_at__lt=looked_before).order_by(LONGEST_AGO, "id")[:limit])


def open_refunds(mode: str, looked_before: datetime, limit: int) -> list[Refund]:
    """Return refunds that nobody has asked Stripe about for a while."""
    waiting = Refund.objects.filter(
        mode=mode, status__in=(RefundStatus.CREATED, RefundStatus.PENDING)
    )
    due = waiting.filter(Q(looked_at__lt=looked_before) | Q(looked_at__isnull=True))
    return list(due.filter(created_at__lt=looked_before).order_by(LONGEST_AGO, "id")[:limit])


def booked_payments(mode: str, starts_at: datetime, ends_at: datetime) -> list[StripePayment]:
    """Return the payments that came in within a span of time."""
    paid = StripePayment.objects.filter(mode=mode, status=PaymentStatus.SUCCEEDED)
    return list(paid.filter(settled_at__gte=starts_at, settled_at__lt=ends_at).order_by("id"))


def booked_refunds(mode: str, starts_at: datetime, ends_at: datetime) -> list[Refund]:
    """Return the refunds that were paid within a span of time."""
    paid = Refund.objects.filter(mode=mode, status=RefundStatus.SUCCEEDED)
    return list(paid.filter(settled_at__gte=starts_at, settled_at__lt=ends_at).order_by("id"))


def methods(organization_id: str, mode: str) -> QuerySet[PaymentMethod]:
    """Return an organization's saved methods, the default first."""
    mine = PaymentMethod.objects.filter(organization_id=organization_id, mode=mode)
    return mine.filter(detached_at__isnull=True).order_by("-is_default", "-created_at", "id")


def method(organization_id: str, mode: str, method_id: str) -> PaymentMethod:
    """Return one saved method. Raises ObjectNotFound."""
    found = methods(organization_id, mode).filter(id=method_id).first()
    if found is None:
        raise ObjectNotFound("There is no such payment method.")
    return found


def default_method(organization_id: str, mode: str) -> PaymentMethod | None:
    """Return the method that pays where none is named."""
    return methods(organization_id, mode).filter(is_default=True).first()


def method_by_stripe_id(stripe_id: str) -> PaymentMethod | None:
    """Return a method by Stripe's id of it, a detached one too."""
    return PaymentMethod.objects.filter(stripe_id=stripe_id).first()


def customer(organization_id: str, mode: str) -> StripeCustomer | None:
    """Return an organization as Stripe knows it."""
    return StripeCustomer.objects.filter(organization_id=organization_id, mode=mode).first()


def customer_by_stripe_id(stripe_id: str | None) -> StripeCustomer | None:
    """Return whose customer this is at Stripe."""
    return StripeCustomer.objects.filter(stripe_id=stripe_id).first() if stripe_id else None


def auto_top_up(organization_id: str) -> AutoTopUp | None:
    """Return an organization's settings of automatic top-ups."""
    return AutoTopUp.objects.filter(organization_id=organization_id).first()


def running_auto_top_ups(mode: str) -> list[AutoTopUp]:
    """Return the settings of all organizations that top up by themselves and wait for none."""
    waiting = StripePayment.objects.filter(
        mode=mode, purpose=Purpose.AUTOMATIC, status__in=OPEN
    ).values("organization_id")
    running = AutoTopUp.objects.filter(is_on=True, stopped_at__isnull=True)
    return list(running.exclude(organization_id__in=waiting))


def automatic_cents_since(organization_id: str, mode: str, since: datetime) -> int:
    """Return what automatic top-ups took, or may still take, since a moment, tax aside."""
    rows = StripePayment.objects.filter(
        organization_id=organization_id,
        mode=mode,
        purpose=Purpose.AUTOMATIC,
        status__in=TAKES_UP,
        created_at__gte=since,
    )
    return int(rows.aggregate(cents=Sum("amount_cents"))["cents"] or 0)


def was_declined_since(organization_id: str, mode: str, since: datetime) -> bool:
    """Tell whether an automatic top-up was declined since a moment."""
    tried = payments(organization_id, mode).filter(purpose=Purpose.AUTOMATIC)
    return tried.filter(status=PaymentStatus.FAILED, settled_at__gt=since).exists()


def refunds_of(payment_id: str) -> list[Refund]:
    """Return what was paid back of a payment, and did not come back."""
    rows = Refund.objects.filter(payment_id=payment_id).exclude(status=RefundStatus.FAILED)
    return list(rows.order_by("created_at", "id"))


def refund_by_key(organization_id: str, idempotency_key: str) -> Refund | None:
    """Return the refund that was asked for with a key."""
    mine = Refund.objects.filter(organization_id=organization_id)
    return mine.filter(idempotency_key=idempotency_key).first()


def refund_by_id(refund_id: str) -> Refund:
    """Return a refund. Raises ObjectNotFound."""
    found = Refund.objects.select_related("payment").filter(id=refund_id).first()
    if found is None:
        raise ObjectNotFound("There is no such refund.")
    return found


def refund_of_stripe(stripe_id: str, named: str | None) -> Refund | None:
    """Return the refund that Stripe speaks of: by what its metadata names, or by Stripe's id."""
    rows = Refund.objects.select_related("payment")
    return rows.filter(Q(stripe_id=stripe_id) | Q(id=named or "")).order_by("id").first()


def dispute(stripe_id: str) -> Dispute | None:
    """Return a dispute by Stripe's id of it."""
    return Dispute.objects.select_related("payment").filter(stripe_id=stripe_id).first()


def disputed_organizations(organization_ids: Collection[str], mode: str) -> set[str]:
    """Return which of the organizations have a dispute of a mode that is not decided."""
    rows = Dispute.objects.filter(
        organization_id__in=organization_ids, mode=mode, closed_at__isnull=True
    )
    return set(rows.values_list("organization_id", flat=True))


def taken_cents(payment_id: str) -> int:
    """Return what refunds and lost or running disputes took of a payment, tax aside."""
    refunded = sum(each.amount_cents for each in refunds_of(payment_id))
    gone = Dispute.objects.filter(payment_id=payment_id, reinstated_at__isnull=True)
    return refunded + int(gone.aggregate(cents=Sum("taken_cents"))["cents"] or 0)


def open_disputes(mode: str) -> QuerySet[Dispute]:
    """Return all disputes that are not decided, the most urgent first."""
    return Dispute.objects.filter(mode=mode, closed_at__isnull=True).order_by("due_by", "opened_at")


def open_disputes_after(mode: str, stripe_id: str, limit: int) -> list[str]:
    """Return the disputes that are not decided and whose Stripe ids come next."""
    rows = Dispute.objects.filter(mode=mode, closed_at__isnull=True, stripe_id__gt=stripe_id)
    return list(rows.order_by("stripe_id").values_list("stripe_id", flat=True)[:limit])


def open_payments_count(mode: str) -> int:
    """Return how many payments nobody knows the end of."""
    return StripePayment.objects.filter(mode=mode, status__in=OPEN).count()


def refunds_by_status(mode: str, statuses: Collection[str]) -> int:
    """Return how many refunds are this far."""
    return Refund.objects.filter(mode=mode, status__in=statuses).count()


def waiting_events_count() -> int:
    """Return how many webhooks were not looked at."""
    return StripeEvent.objects.filter(processed_at__isnull=True).count()


def promotional_code(code: str) -> PromotionalCode | None:
    """Return a code, locked until the transaction ends."""
    return PromotionalCode.objects.select_for_update().filter(code=code).first()


def has_redeemed(code: str, user_id: str) -> bool:
    """Tell whether a person used a code."""
    return Redemption.objects.filter(code_id=code, user_id=user_id).exists()


def open_gaps(mode: str) -> QuerySet[Gap]:
    """Return what our books and Stripe say differently, oldest first."""
    return Gap.objects.filter(mode=mode, closed_at__isnull=True).order_by("seen_at", "id")


def credited_to(intent_id: str) -> str:
    """Return the organization that an unmatched payment was credited to; nothing for none."""
    for found in Gap.objects.filter(reference=intent_id).exclude(organization_id=""):
        if booked_by_key(found.organization_id, booking_key(intent_id)):
            return found.organization_id
    return ""


def booking_key(reference: str) -> str:
    """Return what a payment that Stripe knows by a reference is booked by, once."""
    return f"stripe:{reference}"


def gap(gap_id: int) -> Gap:
    """Return a gap. Raises ObjectNotFound."""
    found = Gap.objects.filter(pk=gap_id).first()
    if found is None:
        raise ObjectNotFound("There is no such gap.")
    return found


def last_reconciliation(mode: str) -> Reconciliation | None:
    """Return the last look at everything that came to its end."""
    ended = Reconciliation.objects.filter(mode=mode, ended_at__isnull=False)
    return ended.order_by("-ended_at").first()


def reconciliation_under_way(mode: str) -> Reconciliation | None:
    """Return the look at everything that has not come to its end."""
    return Reconciliation.objects.filter(mode=mode, ended_at__isnull=True).first()


def nanos(cents: int) -> int:
    """Return cents as nano-dollars."""
    return cents * NANOS_PER_CENT
