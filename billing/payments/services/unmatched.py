"""What operators do about money that fits no wish: credit it, or let it be. Either ends the wish
that was paid otherwise than asked: nobody waits for it any more."""

from datetime import datetime

from django.db import transaction

from billing.credit.services.payments import record_payment
from billing.payments.models import Gap, GapKind
from billing.payments.selectors import booking_key, nanos, payment_by_id, payment_of_intent
from billing.payments.selectors import gap as gap_by_id
from billing.payments.services.gaps import close
from billing.payments.services.state import give_up
from control.errors import Conflict
from control.permissions import Actor, Permission, require_operator


@transaction.atomic
def credit_gap(
    *, gap_id: int, organization_id: str, actor: Actor, reason: str, now: datetime
) -> Gap:
    """Book a payment that Stripe has and we did not ask for, as an organization's credit.

    Raises NotPermitted, ObjectNotFound, InvalidValue for one that brought nothing, Conflict for one
    that is no dollars, closed already, or in the books as a payment of ours.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    gap = _locked(gap_id, "Paid otherwise than asked, and credited", now=now)
    if gap.kind not in (GapKind.UNKNOWN_PAYMENT, GapKind.UNLIKE_PAYMENT):
        raise Conflict("Only a payment can be credited.")
    if gap.currency != "usd":
        raise Conflict(f"The payment is in {gap.currency}; the books are in usd.")
    ours = payment_of_intent(gap.reference, None)
    if ours is not None and payment_by_id(ours).payment_id is not None:
        raise Conflict(f"{ours} is already in the books: credit or refund only the difference.")
    record_payment(
        organization_id=organization_id,
        amount_nanos=nanos(gap.amount_cents),
        idempotency_key=booking_key(gap.reference),
        actor=actor,
        reason=f"Payment {gap.reference}",
        now=now,
    )
    gap.organization_id = organization_id
    return close(gap, actor.name, f"Credited: {reason}", now, actor)


@transaction.atomic
def dismiss_gap(*, gap_id: int, reason: str, actor: Actor, now: datetime) -> Gap:
    """Close a gap that needs nothing booked, with a reason. Raises NotPermitted, ObjectNotFound,
    Conflict."""
    require_operator(actor, Permission.FINANCE_WRITE)
    gap = _locked(gap_id, "Paid otherwise than asked", now=now)
    return close(gap, actor.name, reason, now, actor)


def _locked(gap_id: int, words: str, *, now: datetime) -> Gap:
    """Return an open gap, locked after its payment, which ends if it is still waited for."""
    gap = gap_by_id(gap_id)
    ours = payment_of_intent(gap.reference, None, lock=True)
    gap = Gap.objects.select_for_update().get(pk=gap_id)
    if gap.closed_at is not None:
        raise Conflict("It is already closed.")
    is_unlike = gap.kind == GapKind.UNLIKE_PAYMENT
    if is_unlike and ours is not None and payment_by_id(ours).is_open:
        give_up(ours, words, now=now)
    return gap
