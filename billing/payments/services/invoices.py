"""Collecting invoices: with the default method, or on a page of Stripe's that a member opens."""

from datetime import datetime

from billing.invoicing.selectors import Standing, invoice, invoice_by_id, standing
from billing.payments.models import Purpose, StripePayment
from billing.payments.models.payments import KEY_MAX
from billing.payments.selectors import payment_of_invoice, tries_of_invoice
from billing.payments.services.asking import ask, ask_for_invoice, check_charge
from billing.payments.services.sessions import open_checkout
from billing.payments.stripe_api import stripe_mode
from control.errors import Conflict
from control.organizations.models import Organization
from control.permissions import Actor, Permission, require


def charge_invoice(invoice_id: str, *, now: datetime) -> StripePayment:
    """Ask for what is left to pay of an invoice, off-session; while that is under way, a repeat
    returns it. What came of it is told by `payment_succeeded` and `payment_failed`.

    Raises NoStripe, ObjectNotFound, Conflict where nothing is left, it is disputed, a page to pay
    it is open, or no method is saved, InvalidValue for less than a card takes.
    """
    key = _next_try(invoice_id)
    stands = standing(invoice_by_id(invoice_id))
    _require_open(stands)
    running = payment_of_invoice(invoice_id, stripe_mode())
    if running is not None and running.checkout_id is not None:
        raise Conflict("The customer has a payment page open for it.", code="payment_open")
    return ask_for_invoice(
        organization_id=stands.invoice.organization_id,
        invoice_id=invoice_id,
        amount_cents=stands.open_cents,
        key=key,
        now=now,
    )


def start_invoice_checkout(
    *, organization: Organization, invoice_id: str, actor: Actor, now: datetime
) -> StripePayment:
    """Open a page of Stripe's on which a member pays what is left of an invoice, tax included, with
    any method; while a payment of it is under way, return that one.

    The payment's `action_url` leads there. Raises NoStripe, NotPermitted, ObjectNotFound,
    StripeAway, Conflict where nothing is left or it is disputed, InvalidValue for less than a card
    takes.
    """
    require(actor, organization.id, Permission.BILLING_WRITE)
    key = _next_try(invoice_id)
    stands = standing(invoice(organization, invoice_id))
    _require_open(stands)
    check_charge(stands.open_cents)
    wanted = StripePayment(
        organization_id=organization.id,
        mode=stripe_mode(),
        purpose=Purpose.INVOICE,
        amount_cents=stands.open_cents,
        invoice_id=invoice_id,
        idempotency_key=key,
        requested_by=actor.name,
        created_at=now,
    )
    payment = payment_of_invoice(invoice_id, wanted.mode) or ask(wanted, actor=actor, now=now)
    is_new = payment.method_id is None and payment.checkout_id is None
    # The customer waits for the page: Stripe is asked here, after the row is committed.
    return open_checkout(payment, now=now) if is_new else payment


def _next_try(invoice_id: str) -> str:
    """Return the name of an invoice's next try, by card or by page. Taken before it is seen what is
    left: a try that comes in meanwhile is found by it."""
    return f"{invoice_id}:{tries_of_invoice(invoice_id, stripe_mode()) + 1}"[-KEY_MAX:]


def _require_open(stands: Standing) -> None:
    if stands.is_settled:
        raise Conflict("Nothing is left to pay on this invoice.", code="invoice_paid")
    if stands.is_disputed:
        raise Conflict("The invoice is disputed.", code="invoice_disputed")
