"""What an operator may do about usage."""

from datetime import datetime

import msgspec
from django.db import transaction

from billing.metering.batch import AGE_MAX, canonical
from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.permissions import Actor, Permission, require_operator
from serving.contract.ids import moment_of
from serving.contract.usage import UsageBatch

TOO_OLD = (
    f"Its request is over {AGE_MAX.days} days old: its day may be archived, so it can no longer be"
    " recorded. Dismiss it: nobody is charged for it."
)


def book_again(*, actor: Actor, letter: DeadLetter, now: datetime) -> None:
    """Try to book a dead letter, say after its price was published.

    A dismissed one can be booked all the same. Raises Conflict with the reason when it still cannot
    be booked, as for good beyond the window of ingest (decision 0018), and for one that is booked
    already.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    if letter.booked_at is not None:
        raise Conflict("It was already recorded.")
    if _is_too_old(letter, now):
        raise Conflict(TOO_OLD)
    batch = UsageBatch(letter.gateway_id, (msgspec.Raw(bytes(letter.payload)),))
    receipt = ingest(batch, now=now)
    if receipt.dead_lettered:
        raise Conflict(receipt.dead_lettered[0].reason)
    with transaction.atomic():
        letter.booked_at = now
        letter.save(update_fields=["booked_at"])
        audit.record(
            actor=actor,
            action="usage.book",
            target_kind="dead_letter",
            target_id=letter.id,
            target_name=str(letter),
            details={"event_id": letter.event_id, "gateway_id": letter.gateway_id},
        )


@transaction.atomic
def dismiss(*, actor: Actor, letter_id: str, reason: str, now: datetime) -> None:
    """Note that a dead letter is never to be booked, and why; nobody is charged for it.

    Raises InvalidValue without a reason, Conflict for one that is booked or dismissed already.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    if not reason.strip():
        raise InvalidValue("Enter why it will never be recorded.", param="reason")
    letter = DeadLetter.objects.select_for_update().get(pk=letter_id)
    if letter.booked_at is not None or letter.dismissed_at is not None:
        raise Conflict("It was already recorded or dismissed.")
    letter.dismissed_at = now
    letter.save(update_fields=["dismissed_at"])
    audit.record(
        actor=actor,
        action="usage.dismiss",
        target_kind="dead_letter",
        target_id=letter.id,
        target_name=str(letter),
        details={"reason": reason.strip(), "event_id": letter.event_id},
    )


def _is_too_old(letter: DeadLetter, now: datetime) -> bool:
    event_id = canonical(letter.event_id)
    try:
        return event_id is not None and moment_of(event_id) < now - AGE_MAX
    except OverflowError:
        return False
