"""Every night all that moved at Stripe lately is held against our books, step by step. How far a
look is stays kept after each: however much moved, and whoever ends in between, the night ends."""

import time
from datetime import UTC, datetime, timedelta

import structlog
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from billing.payments.models import Reconciliation
from billing.payments.reconciling import Look, look_at_dispute, look_at_span
from billing.payments.selectors import (
    last_reconciliation,
    open_disputes_after,
    open_gaps,
    reconciliation_under_way,
)
from billing.payments.stripe_api import stripe_api

AT = timedelta(hours=3, minutes=40)
"""When a day's look begins, after midnight UTC."""
WINDOW = timedelta(days=3)
"""How far back each night's look goes: what one night missed, two more see."""
STEP = timedelta(hours=1)
DISPUTES = 50
"""How many disputes a step looks at."""

logger = structlog.get_logger(__name__)


def reconcile_due(*, now: datetime, seconds: float) -> Reconciliation | None:
    """Begin tonight's look, or go on with the one under way, for about so many seconds; return it,
    None where nothing is to be done yet. Safe to run twice at once. Raises NoStripe, StripeAway.

    A night that did not end is ended first, and the next goes back as far as it reached.
    """
    look = reconciliation_under_way(stripe_api().keys.mode) or _tonight(now)
    ends_at = time.monotonic() + seconds
    while look is not None and look.ended_at is None and time.monotonic() < ends_at:
        if not _step(look, STEP, now=now):
            return look  # somebody else is at it
    return look


def reconcile(
    *, starts_at: datetime, ends_at: datetime, now: datetime, step: timedelta = STEP
) -> Reconciliation:
    """Hold a span of time of ours against Stripe's, to its end; return how it went. One that is
    under way is ended first. Raises NoStripe, StripeAway."""
    before = reconciliation_under_way(stripe_api().keys.mode)
    if before is not None:
        _finish(before, step, now=now)
    return _finish(_begin(starts_at, ends_at, now=now), step, now=now)


def _finish(look: Reconciliation, step: timedelta, *, now: datetime) -> Reconciliation:
    while look.ended_at is None:
        _step(look, step, now=now)
    return look


def _tonight(now: datetime) -> Reconciliation | None:
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    before = last_reconciliation(stripe_api().keys.mode)
    if now < midnight + AT or (before is not None and before.ends_at >= midnight):
        return None
    starts_at = midnight - WINDOW
    if before is not None:
        starts_at = min(starts_at, before.ends_at)
    return _begin(starts_at, midnight, now=now)


def _begin(starts_at: datetime, ends_at: datetime, *, now: datetime) -> Reconciliation:
    mode = stripe_api().keys.mode
    try:
        with transaction.atomic():
            return Reconciliation.objects.create(
                mode=mode, starts_at=starts_at, ends_at=ends_at, looked_until=starts_at,
                began_at=now,
            )  # fmt: skip
    except IntegrityError:  # somebody else was first
        winner = reconciliation_under_way(mode)
        if winner is None:
            raise
        return winner


def _step(look: Reconciliation, step: timedelta, *, now: datetime) -> bool:
    """Look at what comes next; return whether nobody else did meanwhile."""
    seen = Look(stripe_api(), now)
    if look.looked_until < look.ends_at:
        until = min(look.looked_until + step, look.ends_at)
        count = look_at_span(seen, look.looked_until, until)
        return _keep(look, seen, movement_count=F("movement_count") + count, looked_until=until)
    disputes = open_disputes_after(look.mode, look.looked_dispute, DISPUTES)
    for dispute_id in disputes:
        look_at_dispute(seen, dispute_id)
    if disputes:
        return _keep(look, seen, looked_dispute=disputes[-1])
    gap_count = open_gaps(look.mode).count()
    if gap_count:
        logger.error("stripe_reconciliation_gaps", gap_count=gap_count)
    return _keep(look, seen, gap_count=gap_count, ended_at=timezone.now())


def _keep(look: Reconciliation, seen: Look, **values: object) -> bool:
    mine = Reconciliation.objects.filter(
        pk=look.pk,
        looked_until=look.looked_until,
        looked_dispute=look.looked_dispute,
        ended_at__isnull=True,
    )
    is_kept = mine.update(healed_count=F("healed_count") + seen.healed_count, **values) == 1
    look.refresh_from_db()
    return is_kept
