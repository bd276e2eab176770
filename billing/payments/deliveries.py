"""What the outbox asks Stripe for."""

from datetime import timedelta

from billing.payments.errors import NoStripe, StripeAway
from billing.payments.services.asking import COLLECT
from billing.payments.services.collecting import collect
from billing.payments.services.freeing import StillHeldError
from billing.payments.services.methods import DETACH, detach
from billing.payments.services.refunding import PAY_BACK, pay_back
from control.outbox.delivery import Delivery, DeliveryError, Handler, RetryAfter, RetryPolicy

LOOK_AGAIN = timedelta(seconds=2)
"""After what time credit that was called back is looked for again, a little later each time."""
LOOK_AGAIN_AT_MOST = timedelta(minutes=1)
PATIENT = RetryPolicy(time_limit=timedelta(seconds=90))
"""Longer than Stripe's own time-outs and stripe-python's repeats together."""


def _collect(delivery: Delivery) -> None:
    try:
        collect(delivery.key, now=delivery.now)
    except (StripeAway, NoStripe) as error:
        raise DeliveryError(error.code) from error


def _pay_back(delivery: Delivery) -> None:
    try:
        pay_back(delivery.key, now=delivery.now)
    except StillHeldError as error:
        wait = min(LOOK_AGAIN * delivery.attempt, LOOK_AGAIN_AT_MOST)
        raise RetryAfter(wait, "gateways hold the credit") from error
    except (StripeAway, NoStripe) as error:
        raise DeliveryError(error.code) from error


def _detach(delivery: Delivery) -> None:
    try:
        detach(delivery.key)
    except (StripeAway, NoStripe) as error:
        raise DeliveryError(error.code) from error


DELIVERIES: dict[str, Handler] = {COLLECT: _collect, PAY_BACK: _pay_back, DETACH: _detach}
POLICIES = {COLLECT: PATIENT, PAY_BACK: PATIENT, DETACH: PATIENT}
