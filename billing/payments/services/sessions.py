"""Pages of Stripe's that a customer is sent to: to pay with a new method, or to save one."""

from datetime import datetime, timedelta

import structlog
from django.conf import settings
from stripe.params.checkout import SessionCreateParams, SessionCreateParamsLineItem

from billing.invoicing.selectors import invoice_by_id
from billing.payments.errors import REFUSED, NotThere, StripeRefused
from billing.payments.models import OPEN, PaymentStatus, Purpose, StripePayment
from billing.payments.services.customers import ensure_customer
from billing.payments.services.state import refuse
from billing.payments.stripe_api import ORGANIZATION, PAYMENT, stripe_api
from control.db.models import new_id
from control.errors import Conflict
from control.organizations.models import Organization
from control.permissions import Actor, Permission, require

NO_PAGE = "The payment service opens no page at the moment. We look into it."
SESSION_LIVES = timedelta(hours=2)

logger = structlog.get_logger(__name__)


def open_checkout(payment: StripePayment, *, now: datetime) -> StripePayment:
    """Ask Stripe for the page of a payment, and keep where it is.

    A repeat gets the same page: the question is made of the row alone. One that Stripe refuses
    ends there. Raises StripeAway, Conflict.
    """
    try:
        customer_id = ensure_customer(payment.organization_id, now=now)
        StripePayment.objects.filter(id=payment.id, asked_at__isnull=True).update(
            asked_at=now, customer_stripe_id=customer_id
        )
        session = stripe_api().create_session(
            _checkout_of(payment, customer_id), key=f"checkout:{payment.id}"
        )
    except (StripeRefused, NotThere) as refused:
        logger.error("stripe_refused", payment_id=payment.id, why=str(refused))
        refuse(payment.id, str(refused), now=now)
        raise Conflict(REFUSED, code="stripe_refused") from None
    StripePayment.objects.filter(id=payment.id, status__in=OPEN).update(
        checkout_id=session.id,
        action_url=session.url or "",
        status=PaymentStatus.OPEN,
        looked_at=now,
    )
    payment.refresh_from_db()
    return payment


def start_method(*, organization: Organization, actor: Actor, now: datetime) -> str:
    """Open a page of Stripe's that saves a card or bank account; return where it is.

    Raises NoStripe, NotPermitted, ObjectNotFound, StripeAway, Conflict.
    """
    require(actor, organization.id, Permission.BILLING_WRITE)
    api = stripe_api()
    back = f"{settings.CONFIG.console_url}/{organization.id}/billing"
    asked: SessionCreateParams = {
        "mode": "setup",
        "allowed_payment_method_types": ["card", "us_bank_account"],
        "currency": "usd",
        "customer": ensure_customer(organization.id, now=now),
        "success_url": f"{back}/saved?session={{CHECKOUT_SESSION_ID}}",
        "cancel_url": back,
        "metadata": {ORGANIZATION: organization.id},
        "setup_intent_data": {"metadata": {ORGANIZATION: organization.id}},
    }
    # Nothing is charged and nothing kept of it: each asking may have a page of its own.
    try:
        session = api.create_session(asked, key=f"setup:{new_id('page')}")
    except (StripeRefused, NotThere) as refused:
        logger.error("stripe_refused", organization_id=organization.id, why=str(refused))
        raise Conflict(NO_PAGE, code="stripe_refused") from None
    return session.url or back


def return_url(payment: StripePayment) -> str:
    """Return where the customer comes back to after Stripe's page or their bank's."""
    home = f"{settings.CONFIG.console_url}/{payment.organization_id}/billing"
    return f"{home}/payments/{payment.id}"


def _checkout_of(payment: StripePayment, customer_id: str) -> SessionCreateParams:
    names = {PAYMENT: payment.id, ORGANIZATION: payment.organization_id}
    what = "Credit"
    if payment.purpose == Purpose.INVOICE:
        what = f"Invoice {invoice_by_id(payment.invoice_id).number}"
    lines = [_line(what, payment.amount_cents)]
    if payment.tax_cents:
        lines.append(_line("Tax", payment.tax_cents))
    return {
        "mode": "payment",
        "allowed_payment_method_types": ["card", "us_bank_account"],
        "customer": customer_id,
        "client_reference_id": payment.id,
        "line_items": lines,
        "metadata": names,
        "payment_intent_data": {
            "metadata": names,
            "description": f"{what}, {payment.id}",
            "setup_future_usage": "off_session",
        },
        "success_url": return_url(payment),
        "cancel_url": f"{return_url(payment)}?canceled=1",
        "expires_at": int((payment.created_at + SESSION_LIVES).timestamp()),
    }


def _line(name: str, cents: int) -> SessionCreateParamsLineItem:
    return {
        "quantity": 1,
        "price_data": {"currency": "usd", "unit_amount": cents, "product_data": {"name": name}},
    }
