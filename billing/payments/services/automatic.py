"""Topping up by itself: when the balance falls under the threshold, within the month's cap, until
two declines in a row."""

from datetime import UTC, datetime, timedelta

import structlog
from django.db import IntegrityError, transaction

from billing.credit.selectors import balances_nanos
from billing.payments.models import AutoTopUp, PaymentMethod, Purpose, StripePayment
from billing.payments.selectors import (
    auto_top_up,
    automatic_cents_since,
    default_method,
    nanos,
    running_auto_top_ups,
    was_declined_since,
)
from billing.payments.services.asking import TOP_UP_MAX_CENTS, TOP_UP_MIN_CENTS, ask
from billing.payments.services.taxes import NoTaxKnown, tax_on_top_up
from billing.payments.stripe_api import stripe_mode
from control.audit import services as audit
from control.db.models import new_id
from control.db.row_changes import snapshot
from control.errors import Conflict, InvalidValue
from control.organizations.models import Organization
from control.permissions import Actor, Permission, require

TOLD = ("is_on", "threshold_cents", "amount_cents", "monthly_cap_cents")
"""What the audit holds of the settings."""
AGAIN_AFTER = timedelta(hours=1)
"""How long after a decline it is tried once more: time to change the method, or top up by hand."""
CAP_MAX_CENTS = 100_000_000

logger = structlog.get_logger(__name__)


@transaction.atomic
def set_auto_top_up(
    *,
    organization: Organization,
    is_on: bool,
    threshold_cents: int,
    amount_cents: int,
    monthly_cap_cents: int,
    actor: Actor,
    now: datetime,
) -> AutoTopUp:
    """Set when an organization tops up by itself; saved anew it starts again after declines.

    Raises NoStripe, NotPermitted, ObjectNotFound, InvalidValue naming the bad field, and Conflict
    where it is turned on and no method is saved.
    """
    require(actor, organization.id, Permission.BILLING_WRITE)
    mode = stripe_mode()
    _within("threshold_cents", threshold_cents, 0, TOP_UP_MAX_CENTS)
    _within("amount_cents", amount_cents, TOP_UP_MIN_CENTS, TOP_UP_MAX_CENTS)
    _within("monthly_cap_cents", monthly_cap_cents, amount_cents, CAP_MAX_CENTS)
    if is_on and default_method(organization.id, mode) is None:
        raise Conflict("Save a payment method first.", code="no_payment_method")
    known = AutoTopUp.objects.filter(organization_id=organization.id).first()
    before = snapshot(known, TOLD) if known else None
    settings, _ = AutoTopUp.objects.update_or_create(
        organization_id=organization.id,
        defaults={
            "is_on": is_on,
            "threshold_cents": threshold_cents,
            "amount_cents": amount_cents,
            "monthly_cap_cents": monthly_cap_cents,
            "decline_count": 0,
            "stopped_at": None,
            "changed_by": actor.name,
            "changed_at": now,
        },
    )
    audit.record(
        actor=actor,
        action="auto_top_up.set",
        target_kind="organization",
        target_id=organization.id,
        target_name=organization.name,
        organization_id=organization.id,
        details={"before": before, "after": snapshot(settings, TOLD)},
    )
    return settings


def run_auto_top_ups(*, now: datetime) -> int:
    """Ask for a top-up of every organization whose balance fell under its threshold; return how
    many were asked for. Safe to run twice at once."""
    mode = stripe_mode()
    running = running_auto_top_ups(mode)
    balances = balances_nanos([each.organization_id for each in running])
    asked = 0
    for each in running:
        if balances.get(each.organization_id, 0) >= nanos(each.threshold_cents):
            continue
        try:
            asked += _top_up_one(each.organization_id, mode, now=now) is not None
        except NoTaxKnown:
            continue  # the next run asks again
    return asked


def _top_up_one(organization_id: str, mode: str, *, now: datetime) -> StripePayment | None:
    """Ask for one top-up, if it is still wanted once the settings are locked."""
    seen = auto_top_up(organization_id)
    if seen is None:
        return None
    tax_cents = tax_on_top_up(organization_id, seen.amount_cents, now=now)
    try:
        with transaction.atomic():
            rows = AutoTopUp.objects.select_for_update(skip_locked=True)
            settings = rows.filter(organization_id=organization_id).first()
            method = default_method(organization_id, mode)
            if settings is None or method is None or not _is_wanted(settings, mode, now):
                return None
            if settings.amount_cents != seen.amount_cents:  # changed meanwhile, and so its tax
                return None
            wanted = _wanted(settings, method, mode, now)
            wanted.tax_cents = tax_cents
            return ask(wanted, actor=Actor.for_system("automatic top-up"), now=now)
    except (Conflict, IntegrityError):  # another run was first
        return None


def _is_wanted(settings: AutoTopUp, mode: str, now: datetime) -> bool:
    if not settings.is_running:
        return False
    if settings.decline_count and was_declined_since(
        settings.organization_id, mode, now - AGAIN_AFTER
    ):
        return False
    balance = balances_nanos([settings.organization_id]).get(settings.organization_id, 0)
    if balance >= nanos(settings.threshold_cents):
        return False
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    taken = automatic_cents_since(settings.organization_id, mode, month)
    if taken + settings.amount_cents > settings.monthly_cap_cents:
        logger.info("auto_top_up_capped", organization_id=settings.organization_id)
        return False
    return True


def _wanted(settings: AutoTopUp, method: PaymentMethod, mode: str, now: datetime) -> StripePayment:
    return StripePayment(
        organization_id=settings.organization_id,
        mode=mode,
        purpose=Purpose.AUTOMATIC,
        amount_cents=settings.amount_cents,
        method=method,
        idempotency_key=new_id("auto"),
        requested_by="automatic top-up",
        created_at=now,
    )


def _within(name: str, cents: int, least: int, most: int) -> None:
    if not least <= cents <= most:
        raise InvalidValue(f"{name} is {cents}; wanted {least} to {most}.", param=name)
