"""How a message reaches an endpoint, and when it is tried again."""

import time
from datetime import datetime, timedelta

from control.encryption import DecryptionError
from control.outbox import delivery as outbox
from control.outbox.delivery import DeliveryError, PermanentFailure, RetryAfter
from control.webhooks import egress, selectors, signing
from control.webhooks.errors import Unreachable
from control.webhooks.models import Delivery
from control.webhooks.outcomes import failed, succeeded
from control.webhooks.patience import asked_to_wait
from control.webhooks.services import KIND

USER_AGENT = "Penstock-Webhooks/1"
GONE = 410
HOUR = timedelta(hours=1)
POLICY = outbox.RetryPolicy(
    waits=(
        timedelta(seconds=5),
        timedelta(minutes=5),
        timedelta(minutes=30),
        2 * HOUR,
        5 * HOUR,
        10 * HOUR,
        14 * HOUR,
        20 * HOUR,
        24 * HOUR,
    ),
    give_up_after=timedelta(days=5),
    attempts_max=10,
    time_limit=timedelta(seconds=20),
    is_alarm=False,
)
"""Ten attempts within some three and a half days. Giving up is the customer's matter: the log of
the endpoint shows it, and an endpoint that only fails is disabled with a mail."""


def deliver(call: outbox.Delivery) -> None:
    """Call an endpoint once, and keep what came of it."""
    delivery = Delivery.objects.select_related("endpoint", "event").filter(id=call.key).first()
    if delivery is None or delivery.endpoint.deleted_at is not None:
        return  # nobody waits for it any more
    if not delivery.endpoint.is_enabled:
        raise PermanentFailure("the endpoint is disabled")
    headers = _headers(delivery, call.now)
    outbox.without_transaction()
    status, error, asked = None, "", None
    began = time.monotonic()
    try:
        answer = egress.post(delivery.endpoint.url, delivery.event.body.encode(), headers)
        status, error = answer.status, fault(answer.status)
        asked = asked_to_wait(status, answer.retry_after, call.now)
    except Unreachable as unreachable:
        error = unreachable.reason
    duration_ms = int((time.monotonic() - began) * 1000)
    if not error and status is not None:
        succeeded(delivery, status=status, duration_ms=duration_ms, now=call.now)
        return
    wait = _wait(call, asked)
    is_ended = failed(
        delivery,
        status=status,
        error=error,
        duration_ms=duration_ms,
        now=call.now,
        next_at=None if wait is None else call.now + wait,
        is_gone=status == GONE,
    )
    if is_ended:
        raise PermanentFailure(error)
    raise DeliveryError(error) if wait is None or asked is None else RetryAfter(wait, error)


def fault(status: int) -> str:
    """Return what is wrong with an answer; nothing where it is 2xx."""
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed"
    return f"answered {status}"


def _headers(delivery: Delivery, now: datetime) -> dict[str, str]:
    endpoint = delivery.endpoint
    try:
        secrets = [
            signing.opened(endpoint, secret) for secret in selectors.valid_secrets(endpoint, now)
        ]
    except DecryptionError as error:
        raise PermanentFailure("its vault key is gone: rotate the endpoint's secret") from error
    signed = signing.signed_headers(
        secrets, message_id=delivery.event_id, body=delivery.event.body, now=now
    )
    return {"content-type": "application/json", "user-agent": USER_AGENT, **signed}


def _wait(call: outbox.Delivery, asked: timedelta | None) -> timedelta | None:
    """Return after what time about it is tried again; None where this attempt was the last.

    That is as long as the endpoint asks for where this is longer, but no longer than we ever wait.
    """
    if POLICY.attempts_max is not None and call.attempt >= POLICY.attempts_max:
        return None
    own = POLICY.waits[min(call.attempt, len(POLICY.waits)) - 1]
    return own if asked is None else min(max(own, asked), max(POLICY.waits))


DELIVERIES = {KIND: deliver}
POLICIES = {KIND: POLICY}
