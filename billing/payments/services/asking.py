"""Asking for money: a row with what is wanted, committed before Stripe hears of it."""

from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction

from billing.payments.models import PaymentMethod, Purpose, StripePayment
from billing.payments.models.payments import KEY_MAX
from billing.payments.selectors import default_method, nanos, payment_like, payment_of_invoice
from billing.payments.services.sessions import open_checkout
from billing.payments.services.taxes import tax_on_top_up
from billing.payments.stripe_api import stripe_mode
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.organizations.models import Organization
from control.outbox.services import enqueue
from control.permissions import Actor, Permission, require
from serving.contract.money import exact_dollars

TOP_UP_MIN_CENTS = 500
TOP_UP_MAX_CENTS = 5_000_000
CHARGE_MIN_CENTS = 50
"""The least that Stripe charges in US dollars."""
CHARGE_MAX_CENTS = 99_999_999
"""The most that Stripe charges in US dollars."""
COLLECT = "stripe.collect"
"""The outbox's word for asking Stripe for a payment with a saved method."""


@dataclass(frozen=True, slots=True)
class TopUpQuote:
    """What a top-up would take from a card: its credit and the tax on it, in cents."""

    amount_cents: int
    tax_cents: int

    @property
    def total_cents(self) -> int:
        """What is paid."""
        return self.amount_cents + self.tax_cents


def quote_top_up(
    *, organization: Organization, amount_cents: int, actor: Actor, now: datetime
) -> TopUpQuote:
    """Return what a top-up would come to now. Raises NotPermitted, InvalidValue, NoTaxKnown."""
    require(actor, organization.id, Permission.BILLING_WRITE)
    check_amount(amount_cents)
    return TopUpQuote(amount_cents, tax_on_top_up(organization.id, amount_cents, now=now))


def top_up(
    *,
    organization: Organization,
    amount_cents: int,
    method: PaymentMethod,
    idempotency_key: str,
    actor: Actor,
    now: datetime,
    agreed_cents: int | None = None,
) -> StripePayment:
    """Ask for a top-up with a saved method: a worker asks Stripe for it at once.

    `agreed_cents` is the total, tax included, that the customer was shown: another one is not
    charged. Repeating a call with its key returns the first payment. Raises NoStripe, NotPermitted,
    ObjectNotFound, InvalidValue naming the bad field, Conflict when the key came with something
    else or the total is another.
    """
    require(actor, organization.id, Permission.BILLING_WRITE)
    check_top_up(amount_cents, idempotency_key)
    wanted = StripePayment(
        organization_id=organization.id,
        mode=stripe_mode(),
        purpose=Purpose.TOP_UP,
        amount_cents=amount_cents,
        method=method,
        idempotency_key=idempotency_key,
        requested_by=actor.name,
        created_at=now,
    )
    with_tax(wanted, now=now)
    is_repeat = payment_like(wanted) is not None
    if not is_repeat and agreed_cents not in (None, wanted.total_cents):
        total = exact_dollars(nanos(wanted.total_cents))
        raise Conflict(f"With tax it comes to {total}.", param="total_cents", code="other_total")
    return ask(wanted, actor=actor, now=now)


def start_checkout(
    *,
    organization: Organization,
    amount_cents: int,
    idempotency_key: str,
    actor: Actor,
    now: datetime,
) -> StripePayment:
    """Open a page of Stripe's on which the customer tops up with a new method, and keeps it.

    The payment's `action_url` leads there. Raises as `top_up` does, and StripeAway.
    """
    require(actor, organization.id, Permission.BILLING_WRITE)
    check_top_up(amount_cents, idempotency_key)
    wanted = StripePayment(
        organization_id=organization.id,
        mode=stripe_mode(),
        purpose=Purpose.TOP_UP,
        amount_cents=amount_cents,
        idempotency_key=idempotency_key,
        requested_by=actor.name,
        created_at=now,
    )
    payment = ask(with_tax(wanted, now=now), actor=actor, now=now)
    # The customer waits for the page: Stripe is asked here, after the row is committed.
    return open_checkout(payment, now=now) if payment.checkout_id is None else payment


def ask_for_invoice(
    *, organization_id: str, invoice_id: str, amount_cents: int, key: str, now: datetime
) -> StripePayment:
    """Ask for what is due of an invoice, tax included, with the default method, off-session.

    `key` names this try among the invoice's; a repeat returns the first payment, and while one is
    under way that one is returned. Raises NoStripe, InvalidValue, and Conflict where no method is
    saved.
    """
    check_charge(amount_cents)
    mode = stripe_mode()
    running = payment_of_invoice(invoice_id, mode)
    if running is not None:
        return running
    method = default_method(organization_id, mode)
    if method is None:
        raise Conflict("There is no saved payment method.", code="no_payment_method")
    wanted_payment = StripePayment(
        organization_id=organization_id,
        mode=mode,
        purpose=Purpose.INVOICE,
        amount_cents=amount_cents,
        method=method,
        invoice_id=invoice_id,
        idempotency_key=key,
        requested_by="billing",
        created_at=now,
    )
    return ask(wanted_payment, actor=Actor.for_system("billing"), now=now)


def ask(wanted: StripePayment, *, actor: Actor, now: datetime) -> StripePayment:
    """Commit a payment to be asked for, once per organization, purpose and key; with a saved method
    the outbox asks Stripe. Raises Conflict when the key came with something else."""
    before = payment_like(wanted)
    if before is not None:
        return _the_same(before, wanted)
    try:
        with transaction.atomic():
            wanted.save(force_insert=True)
            if wanted.method_id is not None:
                enqueue(
                    kind=COLLECT,
                    key=wanted.id,
                    payload={},
                    organization_id=wanted.organization_id,
                    now=now,
                )
            _record(actor, wanted)
    except IntegrityError:
        winner = payment_like(wanted)
        if winner is None:
            raise Conflict("Such a payment is already in progress.", code="payment_open") from None
        return _the_same(winner, wanted)
    return wanted


def with_tax(wanted: StripePayment, *, now: datetime) -> StripePayment:
    """Return a top-up to be asked for with its tax. Raises NoTaxKnown."""
    wanted.tax_cents = tax_on_top_up(wanted.organization_id, wanted.amount_cents, now=now)
    return wanted


def check_charge(amount_cents: int) -> None:
    """Raise InvalidValue for an amount that Stripe does not charge."""
    if not CHARGE_MIN_CENTS <= amount_cents <= CHARGE_MAX_CENTS:
        wanted = f"{CHARGE_MIN_CENTS} to {CHARGE_MAX_CENTS}"
        raise InvalidValue(
            f"amount_cents is {amount_cents}; wanted {wanted}.", param="amount_cents"
        )


def check_amount(amount_cents: int) -> None:
    """Raise InvalidValue for an amount that cannot be topped up."""
    if not TOP_UP_MIN_CENTS <= amount_cents <= TOP_UP_MAX_CENTS:
        wanted = f"{TOP_UP_MIN_CENTS} to {TOP_UP_MAX_CENTS}"
        raise InvalidValue(
            f"amount_cents is {amount_cents}; wanted {wanted}.", param="amount_cents"
        )


def check_top_up(amount_cents: int, idempotency_key: str) -> None:
    """Raise InvalidValue for an amount that cannot be topped up, or a name that names nothing
    once."""
    check_amount(amount_cents)
    if not 0 < len(idempotency_key) <= KEY_MAX:
        message = f"Idempotency-Key has {len(idempotency_key)} characters; wanted 1 to {KEY_MAX}."
        raise InvalidValue(message, param="Idempotency-Key")


def _the_same(before: StripePayment, wanted: StripePayment) -> StripePayment:
    def told(payment: StripePayment) -> tuple[object, ...]:
        return payment.amount_cents, payment.method_id

    if told(before) != told(wanted):
        raise Conflict(
            f"{wanted.idempotency_key!r} was already used for another payment.",
            param="Idempotency-Key",
            code="idempotency_conflict",
        )
    return before


def _record(actor: Actor, payment: StripePayment) -> None:
    audit.record(
        actor=actor,
        action="payment.ask",
        target_kind="stripe_payment",
        target_id=payment.id,
        target_name=str(payment.get_purpose_display()),
        organization_id=payment.organization_id,
        details={
            "purpose": payment.purpose,
            "amount_cents": payment.amount_cents,
            "tax_cents": payment.tax_cents,
            "method": str(payment.method or ""),
        },
    )
