"""Fetching what Stripe's objects are now, and bringing that into our books. Whoever has news of one
(a webhook, a return page, the beat, the nightly look) only names it: news are never believed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import stripe
import structlog

from billing.payments.errors import NotThere, StripeAway
from billing.payments.models import PaymentStatus, Refund, StripePayment
from billing.payments.selectors import is_paid, method_by_stripe_id, open_payments, open_refunds
from billing.payments.services.applying import apply_intent, apply_session
from billing.payments.services.collecting import collect
from billing.payments.services.disputing import apply_dispute
from billing.payments.services.methods import keep_method
from billing.payments.services.refunding import apply_refund, pay_back
from billing.payments.services.sessions import SESSION_LIVES
from billing.payments.services.state import give_up
from billing.payments.stripe_api import stripe_api

LOOK_AGAIN = timedelta(minutes=5)
PAGE = 100
AWAY_MAX = 3
"""After how many questions in a row without an answer Stripe is away."""
ACTION_AT_MOST = timedelta(hours=24)
"""How long a customer has to confirm a payment to their bank."""
UNOPENED_AT_MOST = timedelta(hours=24)

logger = structlog.get_logger(__name__)


def sync_intent(intent_id: str, *, now: datetime, is_page_over: bool = False) -> None:
    """Bring a payment up to date, with the method it saved. One that came in stays so: its refunds
    and disputes are objects of their own."""
    if is_paid(intent_id=intent_id):
        return
    intent = stripe_api().intent(intent_id)
    _keep_method_of(intent, now=now)
    apply_intent(intent, now=now, is_page_over=is_page_over)


def sync_session(session_id: str, *, now: datetime) -> None:
    """Bring a page of Stripe's up to date, with what was paid or saved on it."""
    if is_paid(checkout_id=session_id):
        return
    session = stripe_api().session(session_id)
    apply_session(session, now=now)
    if session.payment_intent is not None:
        is_over = session.status == "complete"
        sync_intent(_id_of(session.payment_intent), now=now, is_page_over=is_over)
    if session.setup_intent is not None:
        sync_setup(_id_of(session.setup_intent), now=now)


def sync_setup(setup_id: str, *, now: datetime) -> None:
    """Keep the method that a set-up saved."""
    setup = stripe_api().setup(setup_id)
    if setup.status == "succeeded" and setup.payment_method is not None:
        sync_method(_id_of(setup.payment_method), now=now)


def sync_method(method_id: str, *, now: datetime) -> None:
    """Bring a saved method up to date."""
    keep_method(stripe_api().method(method_id), now=now)


def sync_refund(refund_id: str, *, now: datetime) -> None:
    """Bring a refund up to date, and its payment before it."""
    refund = stripe_api().refund(refund_id)
    if refund.payment_intent is not None:
        sync_intent(_id_of(refund.payment_intent), now=now)
    apply_refund(refund, now=now)


def sync_refunds_of(intent_id: str, *, now: datetime) -> None:
    """Bring a payment and all that was paid back of it up to date."""
    sync_intent(intent_id, now=now)
    for refund in list(stripe_api().refunds_of(intent_id)):
        apply_refund(refund, now=now)


def sync_dispute(dispute_id: str, *, now: datetime) -> None:
    """Bring a dispute up to date, and its payment before it."""
    dispute = stripe_api().dispute(dispute_id)
    if dispute.payment_intent is not None:
        sync_intent(_id_of(dispute.payment_intent), now=now)
    apply_dispute(dispute, now=now)


SYNC: dict[str, Callable[..., None]] = {
    "intent": sync_intent,
    "session": sync_session,
    "setup": sync_setup,
    "method": sync_method,
    "refund": sync_refund,
    "refunds": sync_refunds_of,
    "dispute": sync_dispute,
}
"""By the kind of object that a webhook names."""


def sync_payment(payment: StripePayment, *, now: datetime) -> None:
    """Bring one of our payments up to date: ask for it, look at it, or give it up in the end.

    Raises StripeAway.
    """
    if payment.intent_id is not None and payment.checkout_id is None:
        sync_intent(payment.intent_id, now=now)
        if payment.status == PaymentStatus.REQUIRES_ACTION and payment.asked_at is not None:
            _give_up_unconfirmed(payment, now=now)
    elif payment.checkout_id is not None:
        sync_session(payment.checkout_id, now=now)
    elif payment.method_id is not None:
        collect(payment.id, now=now)
    elif payment.created_at + SESSION_LIVES + UNOPENED_AT_MOST < now:
        give_up(payment.id, "The page was never opened", now=now)


def sync_open(*, now: datetime) -> int:
    """Bring up to date what has waited for news; return how many were looked at.

    With this, payments end where no webhook ever arrives. One that cannot be looked at holds up no
    other, one that Stripe itself fails at neither. Raises StripeAway where it fails at several in a
    row: there is no use in asking on.
    """
    mode, away = stripe_api().keys.mode, Away()
    payments = open_payments(mode, now - LOOK_AGAIN, PAGE)
    for payment in payments:
        rows = StripePayment.objects.filter(pk=payment.pk)
        rows.exclude(status=PaymentStatus.SUCCEEDED).update(looked_at=now)
        with away.by_itself(payment.id):
            _sync_or_give_up(payment, now=now)
    refunds = open_refunds(mode, now - LOOK_AGAIN, PAGE)
    for refund in refunds:
        Refund.objects.filter(pk=refund.pk).update(looked_at=now)
        with away.by_itself(refund.id):
            _sync_or_pay_back(refund, now=now)
    return len(payments) + len(refunds)


class Away:
    """Counts how often in a row Stripe did not answer."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def by_itself(self, row_id: str) -> Iterator[None]:
        """Let what goes wrong with one row be of no concern to the next. Raises StripeAway."""
        try:
            yield
            self.count = 0
        except StripeAway as error:
            self.count += 1
            logger.warning("stripe_away", row_id=row_id, why=error.why)
            if self.count == AWAY_MAX:
                raise
        except Exception:
            self.count = 0
            logger.exception("stripe_look_failed", row_id=row_id)


def _sync_or_give_up(payment: StripePayment, *, now: datetime) -> None:
    try:
        sync_payment(payment, now=now)
    except NotThere:
        give_up(payment.id, "Stripe has no such payment", now=now)


def _sync_or_pay_back(refund: Refund, *, now: datetime) -> None:
    if refund.stripe_id is None:
        pay_back(refund.id, now=now)
    else:
        sync_refund(refund.stripe_id, now=now)


def _give_up_unconfirmed(payment: StripePayment, *, now: datetime) -> None:
    payment.refresh_from_db()
    is_waiting = payment.status == PaymentStatus.REQUIRES_ACTION
    if is_waiting and payment.created_at + ACTION_AT_MOST < now and payment.intent_id:
        canceled = stripe_api().cancel_intent(payment.intent_id, key=f"cancel:{payment.id}")
        apply_intent(canceled, now=now)


def _keep_method_of(intent: stripe.PaymentIntent, *, now: datetime) -> None:
    """Keep the method that a paid checkout saved; one that is known costs no call."""
    saved = intent.setup_future_usage == "off_session" and intent.payment_method is not None
    if intent.status != "succeeded" or not saved or intent.payment_method is None:
        return
    method_id = _id_of(intent.payment_method)
    if method_by_stripe_id(method_id) is None:
        sync_method(method_id, now=now)


def _id_of(said: object) -> str:
    return said if isinstance(said, str) else str(getattr(said, "id", said))
