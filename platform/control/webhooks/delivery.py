"""Sends a webhook delivery, stores its outcome, decides on the next attempt, and disables an
endpoint that only fails."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F

from control import egress
from control.audit import services as audit
from control.egress import HostUnreachable
from control.encryption import DecryptionError
from control.mail.services import absolute, send_mail
from control.organizations.selectors import notification_recipients
from control.outbox import delivery as outbox
from control.outbox.delivery import DeliveryError, PermanentFailure, RetryAfter, given_up
from control.outbox.models import OutboxMessage
from control.permissions import Actor
from control.webhooks import selectors, signing
from control.webhooks.models import REASON_MAX, WebhookAttempt, WebhookDelivery, WebhookEndpoint
from control.webhooks.services import KIND

USER_AGENT = "Penstock-Webhooks/1"
GONE = 410
HOUR = timedelta(hours=1)
RETRY_POLICY = outbox.RetryPolicy(
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
"""Ten attempts within about three and a half days. A failure for good is the customer's concern:
the endpoint's log shows it, and an endpoint that only fails is disabled with an email."""
POLICIES = {KIND: RETRY_POLICY}
logger = structlog.get_logger(__name__)
FAILING_MAX = timedelta(days=5)
"""An endpoint that only failed for this long is disabled."""
SYSTEM = Actor.for_system("webhooks")
RETRY_AFTER_STATUSES = (429, 503)
"""The response statuses whose `Retry-After` header counts."""
DIGITS_MAX = 9


def deliver(call: outbox.Delivery) -> None:
    """Call an endpoint once, and store the outcome."""
    delivery = (
        WebhookDelivery.objects.select_related("endpoint", "event").filter(id=call.key).first()
    )
    if delivery is None or delivery.endpoint.deleted_at is not None:
        return  # deleted meanwhile
    if not delivery.endpoint.is_receiving:
        raise PermanentFailure("the endpoint is disabled")
    headers = _headers(delivery, call.now)
    outbox.without_transaction()
    status, error, retry_after = None, "", None
    began = time.monotonic()
    try:
        response = egress.post(delivery.endpoint.url, delivery.event.body.encode(), headers)
        status, error = response.status, failure_reason(response.status)
        retry_after = parse_retry_after(status, response.retry_after, call.now)
    except HostUnreachable as unreachable:
        error = unreachable.reason
    duration_ms = int((time.monotonic() - began) * 1000)
    if not error and status is not None:
        on_success(delivery, status=status, duration_ms=duration_ms, now=call.now)
        return
    wait = _wait(call, retry_after)
    is_ended = on_failure(
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
    raise DeliveryError(error) if wait is None or retry_after is None else RetryAfter(wait, error)


def failure_reason(status: int) -> str:
    """Return the reason why a response is a failure; empty for 2xx."""
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed"
    return f"answered {status}"


def _headers(delivery: WebhookDelivery, now: datetime) -> dict[str, str]:
    endpoint = delivery.endpoint
    try:
        secrets = [
            signing.decrypted(endpoint, secret) for secret in selectors.valid_secrets(endpoint, now)
        ]
    except DecryptionError as error:
        raise PermanentFailure("its vault key is gone: rotate the endpoint's secret") from error
    signed = signing.signed_headers(
        secrets, message_id=delivery.event_id, body=delivery.event.body, now=now
    )
    return {"content-type": "application/json", "user-agent": USER_AGENT, **signed}


def _wait(call: outbox.Delivery, retry_after: timedelta | None) -> timedelta | None:
    """Return the wait before the next attempt; None if this was the last.

    The wait is the endpoint's own if that is longer, but no longer than the longest of the policy.
    """
    if RETRY_POLICY.attempts_max is not None and call.attempt >= RETRY_POLICY.attempts_max:
        return None
    own = RETRY_POLICY.waits[min(call.attempt, len(RETRY_POLICY.waits)) - 1]
    return own if retry_after is None else min(max(own, retry_after), max(RETRY_POLICY.waits))


DELIVERIES = {KIND: deliver}


@transaction.atomic
def on_success(delivery: WebhookDelivery, *, status: int, duration_ms: int, now: datetime) -> None:
    """Store an attempt with a 2xx response."""
    _record_attempt(delivery, now, duration_ms, status=status)
    rows = WebhookDelivery.objects.filter(id=delivery.id)
    rows.update(
        delivered_at=now, failed_at=None, next_at=None, attempt_count=F("attempt_count") + 1
    )
    WebhookEndpoint.objects.filter(id=delivery.endpoint_id).update(failing_since=None)


@transaction.atomic
def on_failure(
    delivery: WebhookDelivery,
    *,
    status: int | None,
    error: str,
    duration_ms: int,
    now: datetime,
    next_at: datetime | None,
    is_gone: bool,
) -> bool:
    """Store a failed attempt; return whether the endpoint is disabled now, by this one or
    earlier."""
    _record_attempt(delivery, now, duration_ms, status=status, error=error)
    rows = WebhookDelivery.objects.filter(id=delivery.id, delivered_at__isnull=True)
    rows.update(next_at=next_at, failed_at=None, attempt_count=F("attempt_count") + 1)
    endpoint = WebhookEndpoint.objects.select_for_update(no_key=True).get(id=delivery.endpoint_id)
    if endpoint.failing_since is None:
        endpoint.failing_since = now
        endpoint.save(update_fields=["failing_since"])
    if not endpoint.is_receiving:
        return True
    if is_gone:
        _disable(endpoint, "The endpoint responded with 410 Gone.", now)
    elif now - endpoint.failing_since >= FAILING_MAX:
        _disable(endpoint, f"Every delivery failed for {FAILING_MAX.days} days.", now)
    return not endpoint.is_receiving


def listen() -> None:
    """Mark deliveries as failed once the outbox gives them up."""
    given_up.connect(_on_given_up, dispatch_uid="webhooks.outcomes")


def _on_given_up(*, message: OutboxMessage, now: datetime, **_: Any) -> None:
    if message.kind == KIND:
        rows = WebhookDelivery.objects.filter(id=message.key, delivered_at__isnull=True)
        rows.update(failed_at=now, next_at=None)


def _record_attempt(
    delivery: WebhookDelivery,
    now: datetime,
    duration_ms: int,
    *,
    status: int | None,
    error: str = "",
) -> None:
    WebhookAttempt.objects.create(
        delivery=delivery,
        created_at=now,
        duration_ms=duration_ms,
        status=status,
        error=error[:REASON_MAX],
    )


def _disable(endpoint: WebhookEndpoint, reason: str, now: datetime) -> None:
    endpoint.is_enabled = False
    endpoint.disabled_reason = reason
    endpoint.save(update_fields=["is_enabled", "disabled_reason"])
    audit.record(
        actor=SYSTEM,
        action="webhook_endpoint.disabled",
        target_kind="webhook_endpoint",
        target_id=endpoint.id,
        target_name=endpoint.host,
        organization_id=endpoint.organization_id,
        details={"reason": reason},
    )
    send_mail(
        template="webhook_endpoint_disabled",
        to=notification_recipients(endpoint.organization_id),
        context={
            "organization": endpoint.organization.name,
            "url": endpoint.url,
            "reason": reason,
            "endpoint_url": absolute(f"/{endpoint.organization_id}/webhooks/{endpoint.id}"),
        },
        key=f"webhook_endpoint_disabled:{endpoint.id}:{now.date()}",
        organization_id=endpoint.organization_id,
        now=now,
    )
    logger.info("webhook_endpoint_disabled", endpoint_id=endpoint.id, reason=reason)


def parse_retry_after(status: int, retry_after: str, now: datetime) -> timedelta | None:
    """Return the wait in a `Retry-After` header (RFC 9110, 10.2.3), in seconds or until a date;
    None for an unreadable header and for a past date."""
    text = retry_after.strip()
    if status not in RETRY_AFTER_STATUSES or not text:
        return None
    if text.isascii() and text.isdecimal():
        return timedelta(seconds=int(text)) if len(text) <= DIGITS_MAX else None
    try:
        until = parsedate_to_datetime(text)
        wait = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return None
    return wait if wait > timedelta() else None
