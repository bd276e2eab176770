"""Saved cards and bank accounts: kept as Stripe names them, one of them the default."""

from datetime import UTC, datetime

import stripe
import structlog
from django.db import transaction

from billing.payments.errors import NotThere, StripeRefused
from billing.payments.models import PaymentMethod
from billing.payments.selectors import (
    customer_by_stripe_id,
    method_by_stripe_id,
)
from billing.payments.selectors import method as method_by_id
from billing.payments.stripe_api import stripe_api, stripe_mode
from control.audit import services as audit
from control.organizations.models import Organization
from control.organizations.selectors import locked_organization
from control.outbox.services import enqueue
from control.permissions import Actor, Permission, require

DETACH = "stripe.detach"
"""The outbox's word for taking a method off at Stripe."""
KINDS = {"card": PaymentMethod.Kind.CARD, "us_bank_account": PaymentMethod.Kind.BANK}

logger = structlog.get_logger(__name__)


@transaction.atomic
def keep_method(found: stripe.PaymentMethod, *, now: datetime) -> PaymentMethod | None:
    """Bring a method as it was just fetched into our rows; None where it is none of ours.

    The first of an organization becomes its default; one that Stripe took off its customer pays
    nothing any more.
    """
    known = method_by_stripe_id(found.id)
    if found.customer is None:
        return _retire(known, now=now) if known else None
    owner = customer_by_stripe_id(str(found.customer))
    if owner is None or found.type not in KINDS:
        return None
    locked_organization(owner.organization_id)
    facts = _facts(found)
    if known is None:
        has_default = PaymentMethod.objects.filter(
            organization_id=owner.organization_id, mode=owner.mode, is_default=True
        ).exists()
        known, is_new = PaymentMethod.objects.get_or_create(
            stripe_id=found.id,
            defaults={
                "organization_id": owner.organization_id,
                "mode": owner.mode,
                "is_default": not has_default,
                "created_at": now,
                **facts,
            },
        )
        if is_new:
            _record(Actor.for_system("stripe"), "method.save", known)
        return known
    PaymentMethod.objects.filter(pk=known.pk).update(**facts)
    known.refresh_from_db()
    return known


@transaction.atomic
def make_default(
    *, organization: Organization, method_id: str, actor: Actor, now: datetime
) -> PaymentMethod:
    """Let a method pay where none is named. Raises NoStripe, NotPermitted, ObjectNotFound."""
    require(actor, organization.id, Permission.BILLING_WRITE)
    locked_organization(organization.id)
    chosen = method_by_id(organization.id, stripe_mode(), method_id)
    mine = PaymentMethod.objects.filter(organization_id=organization.id, mode=chosen.mode)
    mine.filter(is_default=True).update(is_default=False)
    mine.filter(pk=chosen.pk).update(is_default=True)
    _record(actor, "method.default", chosen)
    chosen.refresh_from_db()
    return chosen


@transaction.atomic
def remove_method(
    *, organization: Organization, method_id: str, actor: Actor, now: datetime
) -> None:
    """Take a method off: here at once, and at Stripe by the outbox. The next of the others becomes
    the default. Raises NoStripe, NotPermitted, ObjectNotFound."""
    require(actor, organization.id, Permission.BILLING_WRITE)
    locked_organization(organization.id)
    chosen = method_by_id(organization.id, stripe_mode(), method_id)
    _retire(chosen, now=now)
    enqueue(kind=DETACH, key=chosen.id, payload={}, organization_id=organization.id, now=now)
    _record(actor, "method.remove", chosen)


def detach(method_id: str) -> None:
    """Have Stripe forget a method that was taken off here. Raises StripeAway."""
    method = PaymentMethod.objects.get(id=method_id)
    try:
        stripe_api().detach_method(method.stripe_id, key=f"detach:{method.id}")
    except (StripeRefused, NotThere) as refused:  # it is off already
        logger.info("method_is_off", method_id=method_id, why=str(refused))


def method_for(
    organization_id: str, mode: str, said: str | stripe.PaymentMethod | None
) -> PaymentMethod | None:
    """Return an organization's method by what Stripe says of it, an id or the whole."""
    stripe_id = said if isinstance(said, str) else getattr(said, "id", None)
    found = method_by_stripe_id(stripe_id) if stripe_id else None
    is_theirs = found and (found.organization_id, found.mode) == (organization_id, mode)
    return found if is_theirs else None


def _retire(known: PaymentMethod, *, now: datetime) -> PaymentMethod:
    if known.detached_at is not None:
        return known
    was_default = known.is_default
    known.is_default, known.detached_at = False, now
    known.save(update_fields=["is_default", "detached_at"])
    if was_default:
        others = PaymentMethod.objects.filter(
            organization_id=known.organization_id, mode=known.mode, detached_at__isnull=True
        )
        heir = others.order_by("-created_at", "id").first()
        if heir is not None:
            heir.is_default = True
            heir.save(update_fields=["is_default"])
    return known


def _facts(found: stripe.PaymentMethod) -> dict[str, object]:
    if found.type == "us_bank_account":
        account = found.us_bank_account
        brand = getattr(account, "bank_name", None) or "Bank account"
        last4, year, month = getattr(account, "last4", None) or "", None, None
    else:
        card = found.card
        brand = (getattr(card, "brand", None) or "card").replace("_", " ").title()
        last4 = getattr(card, "last4", None) or ""
        year, month = getattr(card, "exp_year", None), getattr(card, "exp_month", None)
    return {
        "kind": KINDS[found.type],
        "brand": brand[:64],
        "last4": last4[:4],
        "expires_year": year,
        "expires_month": month,
    }


def is_expired(method: PaymentMethod, now: datetime) -> bool:
    """Tell whether a card's month is over."""
    if method.expires_year is None or method.expires_month is None:
        return False
    today = now.astimezone(UTC)
    return (method.expires_year, method.expires_month) < (today.year, today.month)


def _record(actor: Actor, action: str, method: PaymentMethod) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="payment_method",
        target_id=method.id,
        target_name=str(method),
        organization_id=method.organization_id,
        details={"kind": method.kind},
    )
