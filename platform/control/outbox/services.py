"""What may be done to messages: enqueue, deliver, retry, trim."""

import json
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from control.actor import Actor
from control.audit import services as audit
from control.errors import Conflict
from control.operators import Duty, require_operator
from control.outbox.attempts import attempt
from control.outbox.claims import claim
from control.outbox.models import KEY_MAX, KIND_MAX, Message
from control.outbox.selectors import locked_message
from control.outbox.waking import wake_on_commit

PAYLOAD_CHARACTERS_MAX = 64_000
PAGE = 100
KEEP_DELIVERED = timedelta(days=30)
KEEP_GIVEN_UP = timedelta(days=90)


def enqueue(
    *,
    kind: str,
    key: str,
    payload: dict[str, Any],
    organization_id: str | None,
    now: datetime,
    due_at: datetime | None = None,
    lane: str | None = None,
) -> None:
    """Decide, in the caller's transaction, that something is to happen outside.

    `kind` and `key` are unique: a repeat is nothing, for at least 30 days after the delivery.
    `payload` is JSON: ids rather than content, and no secret. `lane` names what shares its fate,
    such as one destination; by default the kind's messages of one organization. Raises ValueError
    outside a transaction, for a payload that is too long and for names that do not fit.
    """
    if not transaction.get_connection().in_atomic_block:
        raise ValueError("a message is enqueued in the transaction that decides it")
    lane = lane or f"{kind}:{organization_id or ''}"
    for name, value, most in (
        ("kind", kind, KIND_MAX),
        ("key", key, KEY_MAX),
        ("lane", lane, KEY_MAX),
    ):
        if not 0 < len(value) <= most:
            raise ValueError(f"{name} is {value!r}; wanted 1 to {most} characters")
    if (length := len(json.dumps(payload))) > PAYLOAD_CHARACTERS_MAX:
        raise ValueError(
            f"payload has {length} characters of JSON; wanted at most {PAYLOAD_CHARACTERS_MAX}"
        )
    due_at = due_at or now
    message = Message(
        kind=kind,
        key=key,
        payload=payload,
        organization_id=organization_id,
        lane=lane,
        created_at=now,
        started_at=due_at,
        due_at=due_at,
    )
    Message.objects.bulk_create([message], ignore_conflicts=True)
    wake_on_commit()


def deliver_due(*, now: datetime) -> int:
    """Deliver, one after the other, what is due at `now`; return how many were tried.

    What fails is due again later, so this ends. The worker delivers many at once (`deliverer.py`).
    """
    count = 0
    while page := claim(now=now, page=PAGE):
        for message in page:
            attempt(message, now=now)
        count += len(page)
    return count


@transaction.atomic
def retry(*, actor: Actor, message: Message, now: datetime) -> Message:
    """Try a message again from the start, now: one that was given up, or that waits.

    Raises Conflict for one that was delivered or is being delivered.
    """
    require_operator(actor, Duty.HELP_CUSTOMERS)
    message = locked_message(message.id)
    if message.delivered_at is not None:
        raise Conflict("The message is delivered already.")
    if message.claimed_until is not None and message.claimed_until > now:
        raise Conflict("The message is being delivered at this moment.")
    message.given_up_at = None
    message.claimed_until = None
    message.started_at = message.due_at = now
    message.attempts = 0
    message.save()
    audit.record(
        actor=actor,
        action="outbox.retry",
        target_kind="outbox_message",
        target_id=str(message.id),
        organization_id=message.organization_id or "",
        details={"kind": message.kind},
    )
    wake_on_commit()
    return message


def trim(*, now: datetime) -> int:
    """Delete what was delivered 30 days ago or given up 90 days ago; return how many."""
    delivered, _ = Message.objects.filter(delivered_at__lt=now - KEEP_DELIVERED).delete()
    given_up, _ = Message.objects.filter(given_up_at__lt=now - KEEP_GIVEN_UP).delete()
    return delivered + given_up
