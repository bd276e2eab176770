"""A customer pays at Stripe what nobody here asked for: it is named, credited once, and no more."""

import random
from collections.abc import Callable
from datetime import timedelta

from billing.payments.models import Gap, StripeCustomer
from billing.payments.nights import reconcile
from billing.payments.selectors import open_gaps
from billing.payments.services.unmatched import credit_gap
from billing.payments.syncing import sync_intent
from control.errors import ServiceError
from tests.simulation.cast import OPERATOR, Cast
from tests.simulation.oracle import require

STEP = timedelta(hours=12)


def pay_unasked(cast: Cast, rng: random.Random) -> None:
    """Have somebody pay so, whether a webhook tells of it or the nightly look finds it.

    Raises BrokenError where it is not named as it is, or credited otherwise than once.
    """
    customers = StripeCustomer.objects.filter(stripe_id__isnull=False).order_by("pk")
    if not customers:
        return
    customer, cents = rng.choice(list(customers)), rng.randrange(50, 5_000)
    made = cast.payers.stripe.pay_unasked(customer.stripe_id or "", cents)
    for look in rng.choice(((_told,), (_reconciled,), (_told, _reconciled))):
        look(cast, made["id"])
    gaps = [
        (gap.kind, gap.reference, gap.organization_id, gap.amount_cents)
        for gap in open_gaps(customer.mode)
    ]
    named = ("unknown_payment", made["id"], customer.organization_id, cents)
    require(gaps == [named], "What nobody asked for is named", gaps, named)
    cast.payers.unasked[made["id"]] = (customer.organization_id, cents)
    gap = Gap.objects.get(reference=made["id"])
    credit = _crediting(cast, gap)
    credit()
    try:
        credit()
    except ServiceError:
        return
    require(False, "A gap is credited once", gap)


def _crediting(cast: Cast, gap: Gap) -> Callable[[], Gap]:
    return lambda: credit_gap(
        gap_id=gap.pk, organization_id=gap.organization_id, actor=OPERATOR, reason="simulated",
        now=cast.now,
    )  # fmt: skip


def _told(cast: Cast, intent_id: str) -> None:
    sync_intent(intent_id, now=cast.now)


def _reconciled(cast: Cast, intent_id: str) -> None:
    ends_at = cast.now + timedelta(hours=1)
    reconcile(starts_at=cast.now - timedelta(days=1), ends_at=ends_at, now=cast.now, step=STEP)
