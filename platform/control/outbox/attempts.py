"""One attempt: the handler is called outside any transaction, then the message is told."""

import logging
import traceback
from datetime import datetime, timedelta
from pathlib import PurePath

import structlog
from django.db import transaction
from django.db.models import QuerySet

from control.actor import system
from control.audit import services as audit
from control.outbox import registry
from control.outbox.delivery import Delivery
from control.outbox.errors import GiveUp, RetryLater, Undelivered
from control.outbox.models import ERROR_MAX, OPEN, Message
from control.outbox.signals import given_up

logger = structlog.get_logger(__name__)
OUTBOX = system("outbox")


def attempt(message: Message, *, now: datetime) -> None:
    """Deliver a claimed message once, and keep what came of it. Raises nothing of the handler's."""
    handler = registry.handler_of(message.kind)
    delivery = Delivery(
        message.kind,
        message.key,
        message.payload,
        message.organization_id,
        message.attempts,
        now,
    )
    try:
        if handler is None:
            raise Undelivered("no app delivers this kind")
        handler(delivery)
    except Exception as error:
        fail(message, error, now=now)
    else:
        succeed(message, now=now)


def succeed(message: Message, *, now: datetime) -> None:
    """End a message that was delivered; done is done, also where the attempt came too late."""
    rows = Message.objects.filter(id=message.id, delivered_at__isnull=True)
    rows.update(delivered_at=now, given_up_at=None, claimed_until=None, last_error="")


def fail(message: Message, error: Exception, *, now: datetime) -> None:
    """Let a message wait for its next attempt, or give it up.

    An attempt that another one has overtaken changes nothing.
    """
    policy = registry.policy_of(message.kind)
    if isinstance(error, RetryLater):
        next_at = now + max(error.after, timedelta(seconds=1))
        is_over = next_at > message.started_at + policy.give_up_after
    else:
        next_at = now + policy.wait(message.attempts)
        is_over = policy.is_over(message.attempts, message.started_at, next_at)
    words = scrubbed(error)
    logger.warning(
        "outbox_attempt_failed",
        message_id=message.id,
        kind=message.kind,
        organization_id=message.organization_id,
        attempt=message.attempts,
        reason=words,
    )
    if isinstance(error, GiveUp) or is_over:
        _give_up(message, words, now=now)
    else:
        _mine(message).update(
            due_at=max(next_at, message.started_at), claimed_until=None, last_error=words
        )


def scrubbed(error: Exception) -> str:
    """Return why it failed without what others wrote: their messages may hold secrets and links.

    A handler's own reason is kept; of any other error its kind and where in the code it arose.
    """
    if isinstance(error, Undelivered):
        words = error.reason
    else:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        words = f"{type(error).__name__}{place}"
    return "".join(c if c.isprintable() else " " for c in words)[:ERROR_MAX] or "failed"


@transaction.atomic
def _give_up(message: Message, words: str, *, now: datetime) -> None:
    given = _mine(message).update(given_up_at=now, claimed_until=None, last_error=words)
    if not given:
        return
    is_alarm = registry.policy_of(message.kind).is_alarm
    logger.log(
        logging.ERROR if is_alarm else logging.INFO,
        "outbox_given_up",
        message_id=message.id,
        kind=message.kind,
        organization_id=message.organization_id,
        attempt=message.attempts,
        reason=words,
    )
    audit.record(
        actor=OUTBOX,
        action="outbox.give_up",
        target_kind="outbox_message",
        target_id=str(message.id),
        organization_id=message.organization_id or "",
        details={"kind": message.kind, "attempts": message.attempts, "reason": words},
    )
    given_up.send(Message, message=message, is_alarm=is_alarm, now=now)


def _mine(message: Message) -> QuerySet[Message]:
    """The message, while no later attempt has begun."""
    return Message.objects.filter(OPEN, id=message.id, attempts=message.attempts)
