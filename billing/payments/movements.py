"""What moved on Stripe's side, summed by what moved it: the money itself, past all states."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

import stripe

from billing.payments.stripe_api import StripeApi

PAID = ("charge", "payment", "payment_failure_refund")
REFUNDED = ("refund", "payment_refund", "refund_failure")


def _sums() -> dict[str, int]:
    return defaultdict(int)


@dataclass(slots=True)
class Movements:
    """Cents by Stripe's ids: paid per intent, gone per refund, gone per dispute."""

    count: int = 0
    paid: dict[str, int] = field(default_factory=_sums)
    refunded: dict[str, int] = field(default_factory=_sums)
    disputed: dict[str, int] = field(default_factory=_sums)


def movements(api: StripeApi, starts_at: datetime, ends_at: datetime) -> Movements:
    """Return what moved in a span of time: payouts and fees aside. Raises StripeAway."""
    found = Movements()
    for each in api.movements(int(starts_at.timestamp()), int(ends_at.timestamp())):
        _add(found, each)
    return found


def moved_of_payment(api: StripeApi, charge_id: str) -> int:
    """Return the cents that a charge has moved in all: a bank may take them back days later."""
    return sum(each.amount for each in api.movements_of(charge_id) if each.type in PAID)


def moved_of_refund(api: StripeApi, refund_id: str) -> int:
    """Return the cents that a refund has taken in all: a bank may send them back days later."""
    return -sum(each.amount for each in api.movements_of(refund_id) if each.type in REFUNDED)


def _add(found: Movements, each: stripe.BalanceTransaction) -> None:
    source = each.source
    intent = getattr(source, "payment_intent", None)
    if each.type in PAID and intent is not None:
        found.paid[intent if isinstance(intent, str) else intent.id] += each.amount
    elif each.type in REFUNDED and source is not None:
        found.refunded[str(getattr(source, "id", source))] -= each.amount
    elif getattr(source, "object", None) == "dispute":
        found.disputed[str(getattr(source, "id", source))] -= each.amount
    else:
        return
    found.count += 1
