"""A span of time at Stripe against what we booked in it. What only a lost webhook kept apart is
brought up to date; whatever still differs is a gap with a name, for people."""

from dataclasses import dataclass, field
from datetime import datetime

from billing.payments.errors import NotThere
from billing.payments.models import (
    Dispute,
    GapKind,
    PaymentStatus,
    Refund,
    RefundStatus,
    StripePayment,
)
from billing.payments.movements import (
    Movements,
    moved_of_payment,
    moved_of_refund,
    movements,
)
from billing.payments.selectors import (
    booked_payments,
    booked_refunds,
    credited_to,
    dispute,
    payment_by_id,
    payment_of_intent,
    refund_of_stripe,
)
from billing.payments.services.gaps import close_fitting, open_gap
from billing.payments.stripe_api import StripeApi
from billing.payments.syncing import sync_dispute, sync_intent, sync_refund

UNDER_WAY = (RefundStatus.CREATED, RefundStatus.PENDING)


@dataclass(slots=True)
class Look:
    """One look at everything: what it healed, and what fits."""

    api: StripeApi
    now: datetime
    healed_count: int = 0
    fitting: set[str] = field(default_factory=set)

    def gap(self, kind: GapKind, reference: str, owner: str, cents: int, words: str) -> None:
        """Note what does not fit."""
        open_gap(
            kind=kind, reference=reference, mode=self.api.keys.mode, organization_id=owner,
            amount_cents=cents, currency="usd", words=words, now=self.now,
        )  # fmt: skip


def look_at_span(look: Look, starts_at: datetime, ends_at: datetime) -> int:
    """Hold a span of time of ours against Stripe's; return how many movements it had.

    Doing it twice finds the same, and notes nothing twice. Raises StripeAway.
    """
    found = movements(look.api, starts_at, ends_at)
    for intent_id, cents in found.paid.items():
        _judge_payment(look, intent_id, cents)
    for refund_id, cents in found.refunded.items():
        _judge_refund(look, refund_id, cents)
    for opened in look.api.disputes(int(starts_at.timestamp()), int(ends_at.timestamp())):
        found.disputed[opened.id] += 0
    for dispute_id, cents in found.disputed.items():
        _judge_dispute(look, dispute_id, cents)
    _find_missing(look, found, starts_at, ends_at)
    close_fitting(look.fitting, now=look.now)
    return found.count


def look_at_dispute(look: Look, dispute_id: str) -> None:
    """Bring a dispute that is not decided up to date: a lost one moves no more. Raises
    StripeAway."""
    _judge_dispute(look, dispute_id, 0)
    close_fitting(look.fitting, now=look.now)


def _judge_payment(look: Look, intent_id: str, cents: int) -> None:
    payment = _payment(intent_id)
    if payment is None or payment.status != PaymentStatus.SUCCEEDED:
        sync_intent(intent_id, now=look.now)  # notes a payment that we did not ask for
        was, payment = payment, _payment(intent_id)
        if payment is None:
            return
        is_new = was is None or was.status != payment.status
        look.healed_count += is_new and payment.status == PaymentStatus.SUCCEEDED
    booked = payment.total_cents if payment.status == PaymentStatus.SUCCEEDED else 0
    if booked != cents:  # the rest of it may have moved at another time
        cents = moved_of_payment(look.api, _charge_of(look.api, intent_id))
    if booked == cents or (payment.is_open and payment.status == PaymentStatus.PROCESSING):
        look.fitting.add(intent_id)
        return
    words = f"Stripe moved {cents} cents for {payment.id}, our records say {booked}."
    look.gap(GapKind.UNLIKE_PAYMENT, intent_id, payment.organization_id, cents, words)


def _judge_refund(look: Look, refund_id: str, cents: int) -> None:
    row = _refund(refund_id)
    if row is None or row.status in UNDER_WAY or _booked(row) != cents:
        sync_refund(refund_id, now=look.now)  # one that was paid may have come back since
        was, row = row, _refund(refund_id)
        look.healed_count += row is not None and (was is None or was.status != row.status)
    booked = _booked(row) if row is not None else 0
    if booked != cents:  # the rest of it may have moved at another time
        cents = moved_of_refund(look.api, refund_id)
    if booked == cents:  # without a row it came back before anybody heard of it
        look.fitting.add(refund_id)
        return
    if row is None:
        intent_id = str(look.api.refund(refund_id).payment_intent)
        if owner := _owner_of(intent_id):
            words = f"A refund of {intent_id} at Stripe is not in our records."
            look.gap(GapKind.UNKNOWN_REFUND, refund_id, owner, cents, words)
        return
    words = f"Stripe refunded {cents} cents for {row.id}, our records say {booked}."
    look.gap(GapKind.UNLIKE_REFUND, refund_id, row.organization_id, cents, words)


def _charge_of(api: StripeApi, intent_id: str) -> str:
    charge = api.intent(intent_id).latest_charge
    return charge if isinstance(charge, str) else str(getattr(charge, "id", ""))


def _booked(row: Refund) -> int:
    return 0 if row.status == RefundStatus.FAILED else row.total_cents


def _judge_dispute(look: Look, dispute_id: str, cents: int) -> None:
    """A dispute's movements may lie in two windows: Stripe's object says what they come to."""
    sync_dispute(dispute_id, now=look.now)
    row = dispute(dispute_id)
    if row is None:
        intent_id = str(look.api.dispute(dispute_id).payment_intent)
        if owner := _owner_of(intent_id):
            words = f"A dispute of {intent_id} at Stripe is not in our records."
            look.gap(GapKind.DISPUTE, dispute_id, owner, cents, words)
        return
    look.fitting.add(dispute_id)
    if _is_unlike(row, look.api):
        words = f"Stripe and our records differ on whether {row.payment_id} is withdrawn."
        look.gap(GapKind.DISPUTE, dispute_id, row.organization_id, cents, words)
        look.fitting.discard(dispute_id)


def _is_unlike(row: Dispute, api: StripeApi) -> bool:
    moved = sum(each.amount for each in api.dispute(row.stripe_id).balance_transactions or [])
    is_withdrawn = row.withdrawn_at is not None and row.reinstated_at is None
    return is_withdrawn != (moved < 0)


def _find_missing(look: Look, found: Movements, starts_at: datetime, ends_at: datetime) -> None:
    """Look at what we booked and Stripe did not move in the window."""
    mode = look.api.keys.mode
    for payment in booked_payments(mode, starts_at, ends_at):
        if payment.intent_id in found.paid or _is_paid(look.api, payment):
            look.fitting.add(payment.id)
            continue
        words = f"{payment.id} is in our records, and Stripe has no such payment."
        look.gap(GapKind.MISSING_PAYMENT, payment.id, payment.organization_id, 0, words)
    for refund in booked_refunds(mode, starts_at, ends_at):
        if refund.stripe_id in found.refunded or _is_paid_back(look, refund):
            look.fitting.add(refund.id)
            continue
        words = f"{refund.id} is in our records, and Stripe has no such refund."
        look.gap(GapKind.MISSING_REFUND, refund.id, refund.organization_id, 0, words)


def _is_paid(api: StripeApi, payment: StripePayment) -> bool:
    try:
        intent = api.intent(payment.intent_id or "")
    except NotThere:
        return False
    return intent.status == "succeeded" and intent.amount_received == payment.total_cents


def _is_paid_back(look: Look, refund: Refund) -> bool:
    """Tell whether Stripe paid a refund, or by now our books say too that it came back."""
    stripe_id = refund.stripe_id or ""
    try:
        if look.api.refund(stripe_id).status == "succeeded":
            return True
        sync_refund(stripe_id, now=look.now)
    except NotThere:
        return False
    row = _refund(stripe_id)
    has_come_back = row is not None and row.status == RefundStatus.FAILED
    look.healed_count += has_come_back
    return has_come_back


def _owner_of(intent_id: str) -> str:
    """Return whose payment it is: one that we asked for, or that an operator credited; else
    nothing."""
    payment = _payment(intent_id)
    return payment.organization_id if payment else credited_to(intent_id)


def _payment(intent_id: str) -> StripePayment | None:
    found = payment_of_intent(intent_id, None)
    return payment_by_id(found) if found else None


def _refund(refund_id: str) -> Refund | None:
    return refund_of_stripe(refund_id, None)
