"""Webhooks: verified on the raw body, stored, answered; what is made of them comes after.

An event names an object, and all waiting events of one object cost one look at it. An event is
done in any order, any number of times: looking is harmless, and our rows only move forward.
"""

import json
import time
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import connection, transaction
from django.db.models import F
from stripe import SignatureVerificationError, WebhookSignature

from billing.payments.errors import NotThere, StripeAway
from billing.payments.models import StripeEvent
from billing.payments.stripe_api import stripe_mode
from billing.payments.syncing import SYNC
from control.config import StripeKeys
from control.errors import InvalidValue

BODY_MAX = 512 * 1024
TOLERANCE_SECONDS = 300
CLAIM_FOR = timedelta(minutes=2)
PAGE = 200
LOOK_SECONDS = 60
"""A run claims no object for longer than this: what it did not get to is due again."""
KEEP = timedelta(days=30)
WAITS = (10, 30, 120, 600, 1800, 3600)
"""Seconds until an event is looked at again that could not be, the last for all further times."""

OWN = {
    "payment_intent": "intent",
    "checkout.session": "session",
    "setup_intent": "setup",
    "payment_method": "method",
    "refund": "refund",
    "charge.refund": "refund",
    "charge.dispute": "dispute",
}
"""By the family of an event: what its own object is, which is looked at."""

CLAIM = """
/* Take events that are due, and all others that are due and name the same objects; what another
   worker takes at this moment is skipped. */
WITH first AS (
    SELECT object_kind, object_id FROM payments_event
    WHERE processed_at IS NULL AND due_at <= %(now)s
    ORDER BY due_at, id LIMIT %(page)s FOR UPDATE SKIP LOCKED
), due AS (
    SELECT id FROM payments_event
    WHERE processed_at IS NULL AND due_at <= %(now)s
        AND (object_kind, object_id) IN (SELECT object_kind, object_id FROM first)
    FOR UPDATE SKIP LOCKED
)
UPDATE payments_event AS event SET due_at = %(until)s, attempt_count = attempt_count + 1
FROM due WHERE event.id = due.id
RETURNING event.id, event.object_kind, event.object_id, event.attempt_count
"""

logger = structlog.get_logger(__name__)

Events = list[tuple[int, int]]
"""Rows of events, and how often each was tried."""
Work = dict[tuple[str, str], Events]
"""By object: the events that name it."""


def verify(body: bytes, signature: str, keys: StripeKeys) -> dict[str, Any]:
    """Return the event of a body that one of our signing secrets signed lately.

    Raises InvalidValue for a wrong, old or foreign signature, another mode, or what is no event.
    """
    if not any(_is_signed(body, signature, secret) for secret in keys.webhook_secrets):
        raise InvalidValue("The signature is wrong or too old.", code="invalid_signature")
    try:
        event = json.loads(body)
        event_id, kind, is_live = event["id"], event["type"], event["livemode"]
        said = event["data"]["object"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValue("The body is no event.", code="invalid_event") from error
    if not (isinstance(event_id, str) and isinstance(kind, str) and isinstance(said, dict)):
        raise InvalidValue("The body is no event.", code="invalid_event")
    if is_live is not (keys.mode == "live"):
        raise InvalidValue(f"The event is not of {keys.mode} mode.", code="wrong_mode")
    return dict(event)


def receive(event: dict[str, Any], body: bytes, *, now: datetime) -> bool:
    """Store an event once; return whether anything follows from it. A repeat changes nothing."""
    kind, object_id = object_of(event["type"], event["data"]["object"])
    row = StripeEvent(
        event_id=event["id"][:255],
        type=event["type"][:128],
        mode=stripe_mode(),
        object_kind=kind,
        object_id=object_id[:255],
        api_version=str(event.get("api_version") or "")[:64],
        body=body,
        received_at=now,
        due_at=now,
        processed_at=None if kind else now,
    )
    StripeEvent.objects.bulk_create([row], ignore_conflicts=True)
    return not row.is_ignored


def object_of(kind: str, said: dict[str, Any]) -> tuple[str, str]:
    """Return the kind and id of the object that is to be looked at, two empties for none."""
    family = kind.rpartition(".")[0]
    own_id, intent_id = str(said.get("id") or ""), str(said.get("payment_intent") or "")
    if own_id and family in OWN:
        return OWN[family], own_id
    if family == "charge" and intent_id:
        return ("refunds" if kind == "charge.refunded" else "intent"), intent_id
    return "", ""


def process_inbox(*, now: datetime, page: int = PAGE) -> int:
    """Look at the objects of events that are due, one page of them; return how many were done.

    Safe to run many times at once. What cannot be looked at now is due again later.
    """
    ends_at = time.monotonic() + LOOK_SECONDS
    work = list(_claim(now, page).items())
    done_count = 0
    while work:
        (kind, object_id), events = work.pop(0)
        done_count += _look_at(kind, object_id, events, now=now)
        if time.monotonic() >= ends_at:
            break
    _release([each for _, events in work for each in events], now)
    return done_count


def _look_at(kind: str, object_id: str, events: Events, *, now: datetime) -> int:
    """Look at an object for all events that name it; return how many were done by it."""
    try:
        SYNC[kind](object_id, now=now)
    except NotThere:
        _end(events, now, "Stripe has no such object")
    except StripeAway as error:
        _postpone(events, now, error.why)
    except Exception as error:
        logger.exception("stripe_event_failed", kind=kind, object_id=object_id)
        _postpone(events, now, f"{type(error).__name__}: {error}")
    else:
        _end(events, now, "")
        return len(events)
    return 0


def forget_events(*, now: datetime) -> int:
    """Delete what was done with weeks ago; return how many."""
    old = StripeEvent.objects.filter(processed_at__isnull=False, received_at__lt=now - KEEP)
    return old.delete()[0]


def _is_signed(body: bytes, signature: str, secret: str) -> bool:
    try:
        WebhookSignature.verify_header(body, signature, secret, TOLERANCE_SECONDS)
    except (SignatureVerificationError, UnicodeDecodeError):
        return False
    return True


def _claim(now: datetime, page: int) -> Work:
    work: Work = defaultdict(list)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CLAIM, {"now": now, "until": now + CLAIM_FOR, "page": page})
        for row, kind, object_id, attempts in cursor.fetchall():
            work[kind, object_id].append((row, attempts))
    return work


def _release(events: Events, now: datetime) -> None:
    """Let others take what was claimed and not looked at; that was no attempt."""
    rows = [row for row, _ in events]
    StripeEvent.objects.filter(pk__in=rows, processed_at__isnull=True).update(
        due_at=now, attempt_count=F("attempt_count") - 1
    )


def _postpone(events: Events, now: datetime, problem: str) -> None:
    for row, attempts in events:
        wait = timedelta(seconds=WAITS[min(attempts, len(WAITS)) - 1])
        StripeEvent.objects.filter(pk=row).update(due_at=now + wait, problem=problem[:500])


def _end(events: Events, now: datetime, problem: str) -> None:
    rows = [row for row, _ in events]
    StripeEvent.objects.filter(pk__in=rows).update(processed_at=now, problem=problem)
