"""What customers, their banks, the operator and the beat do with payments through Stripe."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from string import ascii_letters
from typing import Any

from billing.invoicing.models import Invoice
from billing.payments.deliveries import DELIVERIES
from billing.payments.errors import StripeAway
from billing.payments.inbox import process_inbox
from billing.payments.models import PaymentMethod, PaymentStatus, StripePayment
from billing.payments.nights import reconcile
from billing.payments.services import charge_invoice, refund_payment, start_checkout, top_up
from billing.payments.services.automatic import run_auto_top_ups, set_auto_top_up
from billing.payments.services.methods import make_default, remove_method
from billing.payments.services.sessions import start_method
from billing.payments.syncing import sync_open, sync_session
from control.errors import ServiceError
from control.organizations.models import Organization
from control.outbox.claims import claim
from control.outbox.delivery import mark_delivered, run_attempt
from tests.simulation.cast import OPERATOR, Cast, Prepared
from tests.simulation.payers import SAVED, PaidBack, TopUp
from tests.simulation.plan import Deed

LEAST_CENTS = 500
"""The least that can be topped up."""
WINDOW, STEP = timedelta(days=3), timedelta(hours=12)
PAGES = (1, 2, 200)
CONTRADICTED_SHARE = 0.1


def _save_method(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    owner, now = rng.choice(cast.world.organization_ids), cast.now
    card, comes_back = rng.choice(SAVED), rng.random() < 0.7

    def work() -> None:
        url = start_method(organization=_organization(owner), actor=OPERATOR, now=now)
        page_id = url.rpartition("/")[2]
        cast.payers.stripe.save(page_id, card)
        if comes_back:
            sync_session(page_id, now=now)

    return Prepared(f"{owner} saves {card}", work, allowed=(StripeAway,))


def _use_method(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    owner, now, pick = rng.choice(cast.world.organization_ids), cast.now, rng.randrange(100)
    change = rng.choice((make_default, remove_method))

    def work() -> None:
        method = _some_method(owner, pick)
        if method is not None:
            change(organization=_organization(owner), method_id=method.id, actor=OPERATOR, now=now)

    return Prepared(f"{owner} does {change.__name__}", work, allowed=(ServiceError,))


def _top_up(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    owner, now, pick = rng.choice(cast.world.organization_ids), cast.now, rng.randrange(100)
    key = rng.choice((f"top-up {name}", rng.choice(ascii_letters)))
    cents, contradicts = _cents(rng), rng.random() < CONTRADICTED_SHARE

    def work() -> None:
        method = _some_method(owner, pick)
        wishes = cast.payers.top_ups
        if (owner, key) not in wishes and method is not None:
            wishes[owner, key] = TopUp(cents, method.id)
        if (owner, key) in wishes:
            wish = wishes[owner, key]
            ask_top_up(owner, key, wish, now)
            if contradicts:
                ask_top_up(owner, key, replace(wish, amount_cents=wish.amount_cents + 1), now)

    return Prepared(f"{owner} tops up {cents} cents as {key!r}", work, allowed=(ServiceError,))


def _checkout(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    owner, now = rng.choice(cast.world.organization_ids), cast.now
    key = rng.choice((f"page {name}", f"page {rng.choice(ascii_letters)}"))
    wish = cast.payers.top_ups.setdefault((owner, key), TopUp(_cents(rng), None))
    return Prepared(
        f"{owner} opens a page for {wish.amount_cents} cents as {key!r}",
        lambda: ask_top_up(owner, key, wish, now),
        allowed=(ServiceError,),
    )


def ask_top_up(owner: str, key: str, wish: TopUp, now: datetime) -> StripePayment:
    """Ask for a top-up, or find that it was asked for."""
    asked: Any = {
        "organization": _organization(owner), "amount_cents": wish.amount_cents,
        "idempotency_key": key, "actor": OPERATOR, "now": now,
    }  # fmt: skip
    if wish.method_id is None:
        return start_checkout(**asked)
    return top_up(**asked, method=PaymentMethod.objects.get(id=wish.method_id))


def _set_automatic(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    owner, now = rng.choice(cast.world.organization_ids), cast.now
    threshold, amount = rng.choice((0, 500, 50_000)), _cents(rng)
    terms = (threshold, amount, amount * rng.choice((1, 1, 2, 5)))

    def work() -> None:
        cast.payers.automatic.setdefault(owner, []).append(terms)
        set_auto_top_up(
            organization=_organization(owner), is_on=True, threshold_cents=terms[0],
            amount_cents=terms[1], monthly_cap_cents=terms[2], actor=OPERATOR, now=now,
        )  # fmt: skip

    return Prepared(f"{owner} sets automatic top-ups {terms}", work, allowed=(ServiceError,))


def _top_up_automatically(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat tops up", lambda: run_auto_top_ups(now=now))


def _pay_back(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    pick, now = rng.randrange(100), cast.now
    share = rng.choice((1, 1, 2, 3))
    key = rng.choice((f"back {name}", rng.choice(ascii_letters)))

    def work() -> None:
        payment = _some_paid(pick)
        wishes = cast.payers.refunds
        if key not in wishes and payment is not None:
            wishes[key] = PaidBack(payment.id, max(payment.amount_cents // share, 1))
        if key in wishes:
            wish = wishes[key]
            refund_payment(
                payment_id=wish.payment_id, amount_cents=wish.amount_cents, idempotency_key=key,
                actor=OPERATOR, reason="simulated", now=now,
            )  # fmt: skip

    return Prepared(f"operator pays back as {key!r}", work, allowed=(ServiceError,))


def _charge_invoice(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    pick, now = rng.randrange(100), cast.now

    def work() -> None:
        invoices = [*Invoice.objects.order_by("starts_on", "organization_id")]
        if invoices:
            charge_invoice(invoices[pick % len(invoices)].pk, now=now)

    return Prepared("an invoice is collected", work, allowed=(ServiceError,))


def _collect(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now, page = cast.now, rng.choice(PAGES)
    return Prepared("worker asks Stripe", lambda: ask_stripe(now, page))


def ask_stripe(now: datetime, page: int) -> int:
    """Deliver what the outbox has for Stripe; what it has for others leaves here."""
    messages = claim(now=now, page=page)
    for message in messages:
        if message.kind in DELIVERIES:
            run_attempt(message, now=now)
        else:
            mark_delivered(message, now=now)
    return len(messages)


def _webhooks(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now

    def work() -> None:
        for event in cast.payers.some_events(rng):
            cast.payers.deliver(event, now)

    return Prepared("Stripe sends webhooks", work)


def _inbox(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now, page = cast.now, rng.choice(PAGES)
    return Prepared("worker looks at webhooks", lambda: process_inbox(now=now, page=page))


def _sync(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared(
        "beat looks at open payments", lambda: sync_open(now=now), allowed=(StripeAway,)
    )


def _reconcile(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared(
        "beat reconciles",
        lambda: reconcile(starts_at=now - WINDOW, ends_at=now, now=now, step=STEP),
        allowed=(StripeAway,),
    )  # fmt: skip


def _at_stripe(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    def work() -> None:
        for _ in range(rng.choice((1, 1, 2))):
            cast.payers.act(rng)

    return Prepared("somebody acts at Stripe", work)


def _organization(owner: str) -> Organization:
    return Organization.objects.get(id=owner)


def _some_method(owner: str, pick: int) -> PaymentMethod | None:
    rows = PaymentMethod.objects.filter(organization_id=owner, detached_at__isnull=True)
    found = [*rows.order_by("created_at", "id")]
    return found[pick % len(found)] if found else None


def _some_paid(pick: int) -> StripePayment | None:
    rows = StripePayment.objects.filter(status=PaymentStatus.SUCCEEDED)
    found = [*rows.order_by("created_at", "id")]
    return found[pick % len(found)] if found else None


def _cents(rng: random.Random) -> int:
    return rng.choice((LEAST_CENTS, LEAST_CENTS + 1, rng.randrange(LEAST_CENTS, 5_000)))


DEEDS: dict[str, Callable[[Cast, Deed, random.Random, str], Prepared]] = {
    "save_method": _save_method,
    "use_method": _use_method,
    "top_up": _top_up,
    "checkout": _checkout,
    "set_automatic": _set_automatic,
    "top_up_automatically": _top_up_automatically,
    "pay_back": _pay_back,
    "charge_invoice": _charge_invoice,
    "collect": _collect,
    "webhooks": _webhooks,
    "inbox": _inbox,
    "sync": _sync,
    "reconcile": _reconcile,
    "at_stripe": _at_stripe,
}
