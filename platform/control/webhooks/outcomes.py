"""What becomes of a delivery: kept in the log, and an endpoint that only fails is disabled."""

from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F

from control.actor import system
from control.audit import services as audit
from control.mail.services import absolute, send_mail
from control.outbox.delivery import given_up
from control.outbox.models import OutboxMessage
from control.tenants.selectors import people_to_tell
from control.webhooks.models import REASON_MAX, Attempt, Delivery, Endpoint
from control.webhooks.services import KIND

logger = structlog.get_logger(__name__)
FAILING_MAX = timedelta(days=5)
"""An endpoint that only failed for this long is disabled."""
WEBHOOKS = system("webhooks")


@transaction.atomic
def succeeded(delivery: Delivery, *, status: int, duration_ms: int, now: datetime) -> None:
    """Keep a call that was answered with 2xx."""
    _attempt(delivery, now, duration_ms, status=status)
    rows = Delivery.objects.filter(id=delivery.id)
    rows.update(
        delivered_at=now, failed_at=None, next_at=None, attempt_count=F("attempt_count") + 1
    )
    Endpoint.objects.filter(id=delivery.endpoint_id).update(failing_since=None)


@transaction.atomic
def failed(
    delivery: Delivery,
    *,
    status: int | None,
    error: str,
    duration_ms: int,
    now: datetime,
    next_at: datetime | None,
    is_gone: bool,
) -> bool:
    """Keep a call that failed; return whether the endpoint is disabled now, by this or before."""
    _attempt(delivery, now, duration_ms, status=status, error=error)
    rows = Delivery.objects.filter(id=delivery.id, delivered_at__isnull=True)
    rows.update(next_at=next_at, failed_at=None, attempt_count=F("attempt_count") + 1)
    endpoint = Endpoint.objects.select_for_update(no_key=True).get(id=delivery.endpoint_id)
    if endpoint.failing_since is None:
        endpoint.failing_since = now
        endpoint.save(update_fields=["failing_since"])
    if not endpoint.is_enabled:
        return True
    if is_gone:
        _disable(endpoint, "It answered 410: it is gone.", now)
    elif now - endpoint.failing_since >= FAILING_MAX:
        _disable(endpoint, f"Every call failed for {FAILING_MAX.days} days.", now)
    return not endpoint.is_enabled


def listen() -> None:
    """Hear of deliveries that nobody will try again."""
    given_up.connect(_given_up, dispatch_uid="webhooks.outcomes")


def _given_up(*, message: OutboxMessage, now: datetime, **_: Any) -> None:
    if message.kind == KIND:
        rows = Delivery.objects.filter(id=message.key, delivered_at__isnull=True)
        rows.update(failed_at=now, next_at=None)


def _attempt(
    delivery: Delivery, now: datetime, duration_ms: int, *, status: int | None, error: str = ""
) -> None:
    Attempt.objects.create(
        delivery=delivery,
        at=now,
        duration_ms=duration_ms,
        status=status,
        error=error[:REASON_MAX],
    )


def _disable(endpoint: Endpoint, reason: str, now: datetime) -> None:
    endpoint.is_enabled = False
    endpoint.disabled_reason = reason
    endpoint.save(update_fields=["is_enabled", "disabled_reason"])
    audit.record(
        actor=WEBHOOKS,
        action="webhook.disable",
        target_kind="webhook_endpoint",
        target_id=endpoint.id,
        organization_id=endpoint.organization_id,
        details={"reason": reason},
    )
    send_mail(
        template="webhook_disabled",
        to=people_to_tell(endpoint.organization_id),
        context={
            "organization": endpoint.organization.name,
            "url": endpoint.url,
            "reason": reason,
            "endpoint_url": absolute(f"/{endpoint.organization_id}/webhooks/{endpoint.id}"),
        },
        key=f"webhook_disabled:{endpoint.id}:{now.date()}",
        organization_id=endpoint.organization_id,
        now=now,
    )
    logger.info("webhook_disabled", endpoint_id=endpoint.id, reason=reason)
