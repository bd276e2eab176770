"""The whole path of a payment through the very services that customers use, against the test
account of the configured key. The database's side is rolled back; Stripe's stays there."""

import json
from collections.abc import Callable

from django.db import transaction
from django.utils import timezone
from stripe import WebhookSignature

from billing.credit.selectors import balances_nanos
from billing.payments.inbox import process_inbox, receive, verify
from billing.payments.models import PaymentStatus, RefundStatus, StripePayment
from billing.payments.selectors import default_method, nanos, payment_by_id, refund_by_id
from billing.payments.services import refund_payment, top_up
from billing.payments.services.collecting import collect
from billing.payments.services.customers import ensure_customer
from billing.payments.services.refunding import pay_back
from billing.payments.stripe_api import API_VERSION, stripe_api
from billing.payments.syncing import sync_method
from control.db.models import new_id
from control.organizations.models import Organization
from control.permissions import Actor

STEPS = ("Keys", "Customer", "Payment method", "Credit purchase", "Webhook", "Refund", "Ledger")
CENTS = 500
CARD = "pm_card_visa"
OPERATOR = Actor.for_system("stripe-check")
Tell = Callable[[str, str], None]


class CheckFailed(Exception):
    """Stripe did something else than our books expect."""


class _Undo(Exception):
    """Ends the transaction."""


def check_stripe(*, tell: Tell) -> None:
    """Run the path, telling each step as it is done.

    Raises NoStripe, StripeAway, StripeRefused, and CheckFailed for live keys or another outcome.
    """
    api = stripe_api()
    if api.keys.mode != "test":
        raise CheckFailed("the keys are of live mode; this takes test keys only")
    tell("Keys", f"test mode, {api.keys.api_base}, API {API_VERSION}")
    try:
        with transaction.atomic():
            _run(tell)
            raise _Undo
    except _Undo:
        return


def _run(tell: Tell) -> None:
    now = timezone.now()
    # Not by the service: it publishes, and the feed's lock would be held while Stripe is asked.
    organization = Organization.objects.create(name="stripe-check")
    tell("Customer", ensure_customer(organization.id, now=now))
    tell("Payment method", _save_method(organization))
    payment = _top_up(organization)
    tell("Credit purchase", f"{payment.intent_id}, {payment.get_status_display().lower()}")
    tell("Webhook", _webhook(payment))
    tell("Refund", _refund(payment))
    left = balances_nanos([organization.id])[organization.id]
    if left != 0:
        raise CheckFailed(f"{left} nanos are left; wanted 0")
    tell("Ledger", f"{nanos(CENTS)} nanos came in and went back")


def _save_method(organization: Organization) -> str:
    api, now = stripe_api(), timezone.now()
    setup = api.create_setup(
        {
            "customer": ensure_customer(organization.id, now=now),
            "payment_method": CARD,
            "allowed_payment_method_types": ["card"],
            "usage": "off_session",
            "confirm": True,
        },
        key=f"check:{organization.id}",
    )
    if setup.status != "succeeded" or setup.payment_method is None:
        raise CheckFailed(f"the set-up is {setup.status}; wanted succeeded")
    said = setup.payment_method
    sync_method(said if isinstance(said, str) else said.id, now=now)
    saved = default_method(organization.id, api.keys.mode)
    if saved is None:
        raise CheckFailed("the method was not kept")
    return str(saved)


def _top_up(organization: Organization) -> StripePayment:
    now = timezone.now()
    method = default_method(organization.id, stripe_api().keys.mode)
    assert method is not None  # noqa: S101 -- saved one step before
    asked = top_up(
        organization=organization,
        amount_cents=CENTS,
        method=method,
        idempotency_key=new_id("check"),
        actor=OPERATOR,
        now=now,
    )
    collect(asked.id, now=now)
    payment = payment_by_id(asked.id)
    if payment.status != PaymentStatus.SUCCEEDED:
        raise CheckFailed(
            f"the credit purchase is {payment.status} {payment.failure_words}".strip()
        )
    return payment


def _webhook(payment: StripePayment) -> str:
    """Take an event in that we sign ourselves: it names the payment, which is fetched again."""
    keys, now = stripe_api().keys, timezone.now()
    said = {"id": payment.intent_id, "object": "payment_intent"}
    event = {
        "id": new_id("evt_check"),
        "object": "event",
        "type": "payment_intent.succeeded",
        "livemode": False,
        "data": {"object": said},
    }
    body = json.dumps(event)
    signature = WebhookSignature.generate_signature_header(body, keys.webhook_secrets[0])
    receive(verify(body.encode(), signature, keys), body.encode(), now=now)
    if process_inbox(now=now) < 1:
        raise CheckFailed("the payment could not be fetched again")
    return "signed, stored, fetched again, and nothing booked twice"


def _refund(payment: StripePayment) -> str:
    now = timezone.now()
    refund = refund_payment(
        payment_id=payment.id,
        amount_cents=CENTS,
        idempotency_key=new_id("check"),
        actor=OPERATOR,
        reason="stripe-check",
        now=now,
    )
    pay_back(refund.id, now=now)
    refund = refund_by_id(refund.id)
    if refund.status not in (RefundStatus.SUCCEEDED, RefundStatus.PENDING):
        raise CheckFailed(f"the refund is {refund.status}: {refund.failure_words}")
    return f"{refund.stripe_id}, {refund.get_status_display().lower()}"
