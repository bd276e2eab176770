"""Asking Stripe for a payment with a saved method, at least once and charged at most once.

Before the question the row says that it is asked (`asked_at`, committed). Whoever finds it said
before does not know whether Stripe heard: it looks among the customer's payments for the one that
names our row, and only then asks, with the same idempotency key.
"""

from datetime import datetime, timedelta

import stripe
import structlog
from django.db import transaction
from stripe.params import PaymentIntentCreateParams

from billing.payments.errors import REFUSED, Declined, NotThere, StripeAway, StripeRefused
from billing.payments.models import PaymentMethod, PaymentStatus, StripePayment
from billing.payments.selectors import locked_payment, payment_by_id
from billing.payments.services.applying import apply_intent
from billing.payments.services.customers import ensure_customer
from billing.payments.services.sessions import return_url
from billing.payments.services.state import REFUSED_CODE, fail, give_up
from billing.payments.stripe_api import ORGANIZATION, PAYMENT, StripeApi, named_in, stripe_api

ASKED_AT_MOST = timedelta(hours=20)
"""How long a payment is asked for. Stripe remembers an idempotency key for 24 hours."""
CLOCKS_DIFFER = timedelta(minutes=10)
REMOVED = Declined("method_removed", "The payment method was removed.", None)
OF_KIND = {PaymentMethod.Kind.CARD: "card", PaymentMethod.Kind.BANK: "us_bank_account"}

logger = structlog.get_logger(__name__)


def collect(payment_id: str, *, now: datetime) -> None:
    """Have a payment made with its method, or find what became of it. Raises StripeAway."""
    payment = payment_by_id(payment_id)
    if payment.status != PaymentStatus.CREATED or payment.method is None:
        return
    api = stripe_api()
    if api.keys.mode != payment.mode:
        raise StripeAway(f"asked for in {payment.mode} mode")
    customer_id = ensure_customer(payment.organization_id, now=now)
    if payment.asked_at is None and payment.method.detached_at is not None:
        fail(payment_id, REMOVED, now=now)
        return
    is_first = _mark_asked(payment_id, customer_id, now=now)
    intent = None if is_first else _made_before(api, payment, customer_id)
    if intent is None and payment.asked_at and payment.asked_at + ASKED_AT_MOST < now:
        give_up(payment_id, "Stripe never heard of it", now=now)
        return
    if intent is None:
        intent = _ask(api, payment, customer_id, now=now)
    if intent is not None:
        apply_intent(intent, now=now)


@transaction.atomic
def _mark_asked(payment_id: str, customer_id: str, *, now: datetime) -> bool:
    """Write down that Stripe is asked from now on; return whether it never was before."""
    payment = locked_payment(payment_id)
    is_first = payment.asked_at is None
    if is_first:
        payment.asked_at = now
        payment.customer_stripe_id = customer_id
        payment.save(update_fields=["asked_at", "customer_stripe_id"])
    return is_first


def _made_before(
    api: StripeApi, payment: StripePayment, customer_id: str
) -> stripe.PaymentIntent | None:
    since = int((payment.created_at - CLOCKS_DIFFER).timestamp())
    for intent in api.intents_of(customer_id, since):
        if named_in(intent.metadata, PAYMENT) == payment.id:
            return intent
    return None


def _ask(
    api: StripeApi, payment: StripePayment, customer_id: str, *, now: datetime
) -> stripe.PaymentIntent | None:
    try:
        return api.create_intent(_question(payment, customer_id), key=f"collect:{payment.id}")
    except Declined as declined:
        if declined.intent_id is not None:
            intent = api.intent(declined.intent_id)
            apply_intent(intent, now=now, declined=declined)
        else:
            fail(payment.id, declined, now=now)
    except (StripeRefused, NotThere) as refused:
        logger.error("stripe_refused", payment_id=payment.id, why=str(refused))
        ours = Declined(REFUSED_CODE, REFUSED, None, stripe_words=str(refused))
        fail(payment.id, ours, now=now)
    return None


def _question(payment: StripePayment, customer_id: str) -> PaymentIntentCreateParams:
    """Return what Stripe is asked: made of the row alone, so that a repeat asks the same."""
    method = payment.method
    assert method is not None, payment.id  # noqa: S101 -- asked for by `collect` only with one
    asked: PaymentIntentCreateParams = {
        "amount": payment.total_cents,
        "currency": "usd",
        "customer": customer_id,
        "payment_method": method.stripe_id,
        "allowed_payment_method_types": [OF_KIND[PaymentMethod.Kind(method.kind)]],
        "confirm": True,
        "description": f"{payment.get_purpose_display()}, {payment.id}",
        "metadata": {PAYMENT: payment.id, ORGANIZATION: payment.organization_id},
        "expand": ["latest_charge"],
    }
    if payment.is_off_session or method.kind == PaymentMethod.Kind.BANK:
        asked["off_session"] = True
    else:
        asked["return_url"] = return_url(payment)
    return asked
