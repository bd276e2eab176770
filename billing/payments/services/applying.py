"""What Stripe says of a payment, brought into our books, or noted as a gap where it differs."""

from datetime import datetime

import stripe
from django.db import transaction

from billing.payments.errors import Declined
from billing.payments.models import GapKind, PaymentStatus, StripePayment
from billing.payments.selectors import customer_by_stripe_id, locked_payment, payment_of_intent
from billing.payments.services.gaps import open_gap
from billing.payments.services.methods import method_for
from billing.payments.services.state import News, advance
from billing.payments.stripe_api import PAYMENT, named_in

DIRECT = {
    "succeeded": PaymentStatus.SUCCEEDED,
    "processing": PaymentStatus.PROCESSING,
    "requires_action": PaymentStatus.REQUIRES_ACTION,
    "canceled": PaymentStatus.CANCELED,
}
"""What Stripe's word for an intent means whoever asked for it."""


@transaction.atomic
def apply_intent(
    intent: stripe.PaymentIntent,
    *,
    now: datetime,
    declined: Declined | None = None,
    is_page_over: bool = False,
) -> StripePayment | None:
    """Bring an intent as it was just fetched into our books; return its payment.

    `is_page_over` says that it is tried no more on Stripe's page. None where it is none of ours.
    One that says something else than we asked is a gap for people, and changes nothing.
    """
    named = named_in(intent.metadata, PAYMENT)
    payment_id = payment_of_intent(intent.id, named, lock=True)
    if payment_id is None:
        _note_unknown(intent, now=now)
        return None
    payment = locked_payment(payment_id)
    differs = _differs(payment, intent)
    if differs:
        _note_unlike(payment, intent, differs, now=now)
        return payment
    return advance(payment, _news(payment, intent, declined, is_page_over), now=now)


@transaction.atomic
def apply_session(session: stripe.checkout.Session, *, now: datetime) -> StripePayment | None:
    """Bring a page of Stripe's into our books, what was paid on it aside: that is its intent's."""
    named = named_in(session.metadata, PAYMENT)
    payment_id = payment_of_intent("", named, lock=True) if named else None
    if payment_id is None or session.mode != "payment":
        return None
    payment = locked_payment(payment_id)
    if session.id != payment.checkout_id and payment.checkout_id is not None:
        return None
    if payment.status == PaymentStatus.SUCCEEDED:
        return payment
    payment.checkout_id = session.id
    payment.save(update_fields=["checkout_id"])
    if session.status == "expired":
        return advance(payment, News(PaymentStatus.CANCELED), now=now)
    if session.status == "open":
        return advance(payment, News(PaymentStatus.OPEN, action_url=session.url or ""), now=now)
    return payment


def _news(
    payment: StripePayment,
    intent: stripe.PaymentIntent,
    declined: Declined | None,
    is_page_over: bool,
) -> News:
    error = intent.last_payment_error
    status = DIRECT.get(intent.status)
    if status == PaymentStatus.REQUIRES_ACTION and payment.is_on_page:
        status = PaymentStatus(payment.status)  # Stripe's page sees to it
    if status is None:
        # On Stripe's page the customer may try another card: only the page's end is one. A bank's
        # debit that comes back days later finds the page complete.
        is_over = error is not None and (not payment.is_on_page or is_page_over)
        status = PaymentStatus.FAILED if is_over else PaymentStatus(payment.status)
    code, words = "", ""
    if status == PaymentStatus.FAILED:
        code = declined.code if declined else _word(error, "decline_code") or _word(error, "code")
        words = declined.words if declined else _word(error, "message")
    charge = intent.latest_charge
    return News(
        status,
        intent_id=intent.id,
        method_id=_method_of(payment, intent) if status == PaymentStatus.SUCCEEDED else None,
        action_url=_action_url(intent),
        receipt_url=getattr(charge, "receipt_url", None) or "",
        failure_code=code,
        failure_words=words,
    )


def _method_of(payment: StripePayment, intent: stripe.PaymentIntent) -> str | None:
    found = method_for(payment.organization_id, payment.mode, intent.payment_method)
    return found.id if found else None


def _action_url(intent: stripe.PaymentIntent) -> str:
    if intent.status != "requires_action" or intent.next_action is None:
        return ""
    redirect = getattr(intent.next_action, "redirect_to_url", None)
    return getattr(redirect, "url", None) or ""


def _word(error: object, name: str) -> str:
    return getattr(error, name, None) or ""


def _differs(payment: StripePayment, intent: stripe.PaymentIntent) -> str:
    """Return what an intent says otherwise than we asked for, nothing where it fits."""
    is_paid = intent.status == "succeeded"
    paid_cents = intent.amount_received if is_paid else intent.amount
    said = {
        "mode": ("live" if intent.livemode else "test", payment.mode),
        "currency": (intent.currency, "usd"),
        "amount": (paid_cents, payment.total_cents),
        "customer": (intent.customer, payment.customer_stripe_id or intent.customer),
        "payment": (intent.id, payment.intent_id or intent.id),
    }
    named = named_in(intent.metadata, PAYMENT)
    if named != payment.id:
        said["our id"] = (named, payment.id)
    return "; ".join(
        f"{name} is {found}, wanted {wanted}"
        for name, (found, wanted) in said.items()
        if found != wanted
    )


def _note_unknown(intent: stripe.PaymentIntent, *, now: datetime) -> None:
    """A customer of ours paid for what we did not ask. Whoever else pays there is no concern."""
    owner = customer_by_stripe_id(str(intent.customer) if intent.customer else None)
    if owner is None or intent.status != "succeeded":
        return
    open_gap(
        kind=GapKind.UNKNOWN_PAYMENT,
        reference=intent.id,
        mode=owner.mode,
        organization_id=owner.organization_id,
        amount_cents=intent.amount_received,
        currency=intent.currency,
        words="A payment by our customer that we did not ask for.",
        now=now,
    )


def _note_unlike(
    payment: StripePayment, intent: stripe.PaymentIntent, differs: str, *, now: datetime
) -> None:
    if intent.status != "succeeded":
        return
    if payment.intent_id is None and payment_of_intent(intent.id, None) is None:
        payment.intent_id = intent.id  # whoever closes the gap ends this payment by it
        payment.save(update_fields=["intent_id"])
    open_gap(
        kind=GapKind.UNLIKE_PAYMENT,
        reference=intent.id,
        mode=payment.mode,
        organization_id=payment.organization_id,
        amount_cents=intent.amount_received,
        currency=intent.currency,
        words=f"{payment.id}: {differs}.",
        now=now,
    )
