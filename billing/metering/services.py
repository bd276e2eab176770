"""What an operator may do about usage."""

from datetime import datetime

import msgspec
from django.db import transaction

from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter
from control.actor import Actor
from control.audit import services as audit
from control.errors import Conflict
from control.tenants.permissions import require_operator
from serving.contract.usage import UsageBatch


def book_again(*, actor: Actor, letter: DeadLetter, now: datetime) -> None:
    """Try to book a dead letter, say after its price was published.

    Raises Conflict with the reason when it still cannot be booked.
    """
    require_operator(actor)
    batch = UsageBatch(letter.gateway_id, (msgspec.Raw(bytes(letter.payload)),))
    receipt = ingest(batch, now=now)
    if receipt.dead_lettered:
        raise Conflict(receipt.dead_lettered[0].reason)
    with transaction.atomic():
        letter.booked_at = now
        letter.save(update_fields=["booked_at"])
        audit.record(
            actor=actor, action="usage.book", target_kind="dead_letter", target_id=letter.id
        )
