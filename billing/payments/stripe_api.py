"""The one place that speaks to Stripe: every question typed by stripe-python, its API version
pinned, every answer's failure turned into ours. A POST always carries an idempotency key that the
caller has committed before; stripe-python repeats it itself after a dropped connection."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import stripe
from django.conf import settings
from stripe import StripeClient
from stripe._stripe_object import UntypedStripeObject
from stripe.params import (
    CustomerCreateParams,
    PaymentIntentCreateParams,
    PaymentIntentRetrieveParams,
    RefundCreateParams,
    SetupIntentCreateParams,
)
from stripe.params.checkout import SessionCreateParams

from billing.payments.errors import Declined, NoStripe, NotThere, StripeAway, StripeRefused
from control.config import StripeKeys

stripe.enable_telemetry = False
logging.getLogger("stripe").setLevel(logging.WARNING)  # else two lines of log for each call

TIMEOUT_SECONDS = 20
RETRIES = 2
PAGE = 100
AWAY = (
    stripe.APIConnectionError,
    stripe.RateLimitError,
    # A key that was revoked or lacks a right: the operator's to put right, nothing is lost by then.
    stripe.AuthenticationError,
    stripe.PermissionError,
)
ORGANIZATION, PAYMENT = "penstock_organization", "penstock_payment"
"""What our metadata at Stripe is called."""
API_VERSION = stripe.api_version
"""The version of Stripe's API that this stripe-python was made from: sent with every question."""


def stripe_keys() -> StripeKeys:
    """Return the operator's keys. Raises NoStripe."""
    keys = settings.CONFIG.stripe
    if keys is None:
        raise NoStripe
    return keys


def stripe_mode() -> str:
    """Return whether money is real: live or test. Raises NoStripe."""
    return stripe_keys().mode


def stripe_api() -> "StripeApi":
    """Return Stripe as the operator's keys reach it. Raises NoStripe."""
    return _of(stripe_keys())


@lru_cache(maxsize=4)
def _of(keys: StripeKeys) -> "StripeApi":
    return StripeApi(keys)


class StripeApi:
    """What we ask of Stripe. Raises StripeAway, Declined, NotThere, StripeRefused."""

    def __init__(
        self,
        keys: StripeKeys,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        line: stripe.HTTPClient | None = None,
    ) -> None:
        """`line` carries the questions; by default HTTP does."""
        self.keys = keys
        self.client = StripeClient(
            keys.secret,
            stripe_version=API_VERSION,
            base_addresses={"api": keys.api_base},
            max_network_retries=RETRIES,
            http_client=line or stripe.RequestsClient(timeout=timeout_seconds),
        )

    def create_customer(self, asked: CustomerCreateParams, *, key: str) -> stripe.Customer:
        """Make an organization known to Stripe."""
        with translated():
            return self.client.v1.customers.create(asked, {"idempotency_key": key})

    def rename_customer(self, customer_id: str, name: str, *, key: str) -> stripe.Customer:
        """Call an organization at Stripe as it is called by now."""
        with translated():
            customers = self.client.v1.customers
            return customers.update(customer_id, {"name": name}, {"idempotency_key": key})

    def create_session(self, asked: SessionCreateParams, *, key: str) -> stripe.checkout.Session:
        """Open a page of Stripe's that takes a payment or a method."""
        with translated():
            return self.client.v1.checkout.sessions.create(asked, {"idempotency_key": key})

    def session(self, session_id: str) -> stripe.checkout.Session:
        """Return a page of Stripe's as it stands."""
        with translated():
            return self.client.v1.checkout.sessions.retrieve(session_id)

    def create_setup(self, asked: SetupIntentCreateParams, *, key: str) -> stripe.SetupIntent:
        """Save a method without a page, as `penstock billing stripe-check` does."""
        with translated():
            return self.client.v1.setup_intents.create(asked, {"idempotency_key": key})

    def setup(self, setup_id: str) -> stripe.SetupIntent:
        """Return a set-up as it stands."""
        with translated():
            return self.client.v1.setup_intents.retrieve(setup_id)

    def method(self, method_id: str) -> stripe.PaymentMethod:
        """Return a saved method as it stands."""
        with translated():
            return self.client.v1.payment_methods.retrieve(method_id)

    def detach_method(self, method_id: str, *, key: str) -> stripe.PaymentMethod:
        """Take a method off its customer."""
        with translated():
            methods = self.client.v1.payment_methods
            return methods.detach(method_id, None, {"idempotency_key": key})

    def create_intent(self, asked: PaymentIntentCreateParams, *, key: str) -> stripe.PaymentIntent:
        """Ask for a payment with a saved method."""
        with translated():
            return self.client.v1.payment_intents.create(asked, {"idempotency_key": key})

    def intent(self, intent_id: str) -> stripe.PaymentIntent:
        """Return a payment as it stands, with its last charge."""
        with translated():
            expand: PaymentIntentRetrieveParams = {"expand": ["latest_charge"]}
            return self.client.v1.payment_intents.retrieve(intent_id, expand)

    def cancel_intent(self, intent_id: str, *, key: str) -> stripe.PaymentIntent:
        """Give up a payment that nobody has finished."""
        with translated():
            intents = self.client.v1.payment_intents
            return intents.cancel(intent_id, None, {"idempotency_key": key})

    def intents_of(self, customer_id: str, since: int) -> Iterator[stripe.PaymentIntent]:
        """Return a customer's payments made since a Unix time."""
        with translated():
            page = self.client.v1.payment_intents.list(
                {
                    "customer": customer_id,
                    "created": {"gte": since},
                    "limit": PAGE,
                    "expand": ["data.latest_charge"],
                }
            )
            yield from page.auto_paging_iter()

    def charge(self, charge_id: str) -> stripe.Charge:
        """Return a charge as it stands."""
        with translated():
            return self.client.v1.charges.retrieve(charge_id)

    def create_refund(self, asked: RefundCreateParams, *, key: str) -> stripe.Refund:
        """Pay back."""
        with translated():
            return self.client.v1.refunds.create(asked, {"idempotency_key": key})

    def refund(self, refund_id: str) -> stripe.Refund:
        """Return a refund as it stands."""
        with translated():
            return self.client.v1.refunds.retrieve(refund_id)

    def refunds_of(self, intent_id: str) -> Iterator[stripe.Refund]:
        """Return what was paid back of a payment."""
        with translated():
            page = self.client.v1.refunds.list({"payment_intent": intent_id, "limit": PAGE})
            yield from page.auto_paging_iter()

    def dispute(self, dispute_id: str) -> stripe.Dispute:
        """Return a dispute as it stands."""
        with translated():
            return self.client.v1.disputes.retrieve(dispute_id)

    def disputes(self, since: int, until: int) -> Iterator[stripe.Dispute]:
        """Return the disputes opened in a span of Unix time: while a bank only asks, none moves."""
        with translated():
            page = self.client.v1.disputes.list(
                {"created": {"gte": since, "lt": until}, "limit": PAGE}
            )
            yield from page.auto_paging_iter()

    def movements(self, since: int, until: int) -> Iterator[stripe.BalanceTransaction]:
        """Return what moved on Stripe's side in a span of Unix time, with what moved it."""
        with translated():
            page = self.client.v1.balance_transactions.list(
                {
                    "created": {"gte": since, "lt": until},
                    "limit": PAGE,
                    "expand": ["data.source"],
                }
            )
            yield from page.auto_paging_iter()

    def movements_of(self, source_id: str) -> Iterator[stripe.BalanceTransaction]:
        """Return what a charge or refund moved, whenever that was."""
        with translated():
            page = self.client.v1.balance_transactions.list({"source": source_id, "limit": PAGE})
            yield from page.auto_paging_iter()


def named_in(metadata: UntypedStripeObject[str] | dict[str, str] | None, name: str) -> str | None:
    """Return what our metadata on an object says under a name."""
    return metadata[name] if metadata is not None and name in metadata else None


@contextmanager
def translated() -> Iterator[None]:
    """Turn stripe-python's errors into ours."""
    try:
        yield
    except stripe.CardError as error:
        said = _error_of(error.json_body)
        intent = said.get("payment_intent") or {}
        words = error.user_message or "The payment was declined."
        code = said.get("decline_code") or error.code or "card_declined"
        raise Declined(code, words, intent.get("id")) from error
    except AWAY as error:
        raise StripeAway(str(error)) from error
    except stripe.InvalidRequestError as error:
        if error.http_status == 404 or error.code == "resource_missing":
            raise NotThere(str(error)) from error
        raise StripeRefused(str(error), error.param) from error
    except stripe.APIError as error:
        raise StripeAway(str(error)) from error
    except stripe.StripeError as error:
        if (error.http_status or 0) in (409, 429) or (error.http_status or 0) >= 500:
            raise StripeAway(str(error)) from error
        raise StripeRefused(str(error)) from error


def _error_of(body: object) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}
