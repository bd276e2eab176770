"""Creates, changes and deletes webhook endpoints, and sends events to them: one transaction
each."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils.translation import ngettext

from control.audit import services as audit
from control.db.row_changes import snapshot
from control.egress import check_url
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRef
from control.organizations import selectors as tenants
from control.organizations.models import Organization
from control.organizations.signals import (
    DeletionEffect,
    organization_deleted,
    organization_deletion_previewed,
)
from control.outbox.services import enqueue
from control.permissions import Actor, Permission, require
from control.webhooks import selectors, signing
from control.webhooks.models import (
    DESCRIPTION_MAX,
    EVENT_TYPES,
    TEST_EVENT,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
    WebhookSecret,
    new_event_id,
)

KIND = "webhook"
OVERLAP = timedelta(hours=24)
"""The time for which the previous secret also signs."""
SECRETS_MAX = 3
MINUTE = timedelta(minutes=1)
RETENTION = timedelta(days=60)
"""The time for which messages and their log are kept, and a key stays unique."""
PURGE = (
    """
    /* The calls of messages that are kept no longer. */
    DELETE FROM webhooks_attempt USING webhooks_delivery, webhooks_event
    WHERE delivery_id = webhooks_delivery.id AND event_id = webhooks_event.id
      AND webhooks_event.created_at < %s
    """,
    """
    /* Their ways to endpoints. */
    DELETE FROM webhooks_delivery USING webhooks_event
    WHERE event_id = webhooks_event.id AND webhooks_event.created_at < %s
    """,
    """
    /* And they themselves. */
    DELETE FROM webhooks_event WHERE created_at < %s
    """,
)
BODY_CHARACTERS_MAX = 20_000
ENDPOINTS_MAX = 20
"""Endpoints per organization."""
MANUAL_MAX = 20
"""Tests and repeats to one endpoint within a minute, so that nobody's server is flooded."""


@transaction.atomic
def create_endpoint(
    *,
    actor: Actor,
    organization: Organization,
    url: str,
    event_types: Sequence[str],
    description: str = "",
) -> tuple[WebhookEndpoint, str]:
    """Add an endpoint; return it and its secret, which is not shown again.

    Raises InvalidValue for a URL that webhooks may not call, Conflict beyond 20 endpoints.
    """
    require(actor, organization.id, Permission.WEBHOOKS_WRITE)
    organization = tenants.locked_organization(organization.id)
    if selectors.endpoints(organization).count() >= ENDPOINTS_MAX:
        raise Conflict(f"An organization has at most {ENDPOINTS_MAX} webhook endpoints.")
    endpoint = WebhookEndpoint.objects.create(
        organization=organization,
        url=check_url(url),
        event_types=checked_event_types(event_types),
        description=checked_description(description),
    )
    secret = _issue_secret(endpoint)
    values = snapshot(endpoint, ("host", "description", "event_types"))
    _record(actor, "webhook_endpoint.created", endpoint, **values)
    return endpoint, secret


@transaction.atomic
def update_endpoint(*, actor: Actor, endpoint: WebhookEndpoint, **changes: Any) -> WebhookEndpoint:
    """Change `url`, `event_types`, `description` or `is_enabled`; setting `is_enabled` resets its
    failures."""
    require(actor, endpoint.organization_id, Permission.WEBHOOKS_WRITE)
    endpoint = selectors.locked_endpoint(endpoint.organization, endpoint.id)
    # The URL may hold a customer's token, so the audit log names its host only.
    audited_fields = {"host" if name == "url" else name for name in changes}
    before = snapshot(endpoint, audited_fields)
    if "url" in changes:
        endpoint.url = check_url(changes["url"])
    if "event_types" in changes:
        endpoint.event_types = checked_event_types(changes["event_types"])
    if "description" in changes:
        endpoint.description = checked_description(changes["description"])
    if "is_enabled" in changes:
        endpoint.is_enabled = changes["is_enabled"]
        endpoint.disabled_reason = ""
        endpoint.failing_since = None
    endpoint.save()
    _record(
        actor,
        "webhook_endpoint.updated",
        endpoint,
        before=before,
        after=snapshot(endpoint, audited_fields),
    )
    return endpoint


@transaction.atomic
def rotate_secret(*, actor: Actor, endpoint: WebhookEndpoint, now: datetime) -> str:
    """Return a new secret of an endpoint, not shown again; the previous one also signs for a
    day."""
    require(actor, endpoint.organization_id, Permission.WEBHOOKS_WRITE)
    endpoint = selectors.locked_endpoint(endpoint.organization, endpoint.id)
    rows = WebhookSecret.objects.filter(endpoint=endpoint)
    rows.filter(expires_at__isnull=True).update(expires_at=now + OVERLAP)
    kept = [secret.pk for secret in selectors.valid_secrets(endpoint, now)[: SECRETS_MAX - 1]]
    rows.exclude(pk__in=kept).delete()
    secret = _issue_secret(endpoint)
    _record(actor, "webhook_endpoint.secret_rotated", endpoint)
    return secret


@transaction.atomic
def delete_endpoint(*, actor: Actor, endpoint: WebhookEndpoint, now: datetime) -> None:
    """Delete an endpoint: nothing more is sent there, and its secrets are deleted."""
    require(actor, endpoint.organization_id, Permission.WEBHOOKS_WRITE)
    endpoint = selectors.locked_endpoint(endpoint.organization, endpoint.id)
    endpoint.is_enabled = False
    endpoint.deleted_at = now
    endpoint.save(update_fields=["is_enabled", "deleted_at"])
    endpoint.secrets.all().delete()
    _record(actor, "webhook_endpoint.deleted", endpoint)


@transaction.atomic
def send_test(*, actor: Actor, endpoint: WebhookEndpoint, now: datetime) -> WebhookDelivery:
    """Send a message of the type `webhook.test`. Raises Conflict for a disabled endpoint, or after
    20 manual messages in a minute."""
    endpoint = _enabled(actor, endpoint, now)
    data = {"endpoint_id": endpoint.id, "message": "This is a test."}
    event = _event(endpoint.organization_id, TEST_EVENT, new_event_id(), data, now)
    _record(actor, "webhook_endpoint.tested", endpoint)
    return _deliver(endpoint, event, now)


@transaction.atomic
def resend(*, actor: Actor, delivery: WebhookDelivery, now: datetime) -> WebhookDelivery:
    """Send a message again with the same id. Raises Conflict as `send_test` does."""
    endpoint = _enabled(actor, delivery.endpoint, now)
    _record(actor, "webhook_delivery.resent", endpoint, delivery=delivery.id)
    return _deliver(endpoint, delivery.event, now, is_repeat=True)


@transaction.atomic
def send_event(
    *, organization_id: str, event_type: str, data: dict[str, Any], key: str, now: datetime
) -> None:
    """Send an event to the organization's subscribed endpoints, in the caller's transaction.

    `key` makes it unique per type; `data` is JSON with ids, amounts and times, and no secret.
    Raises ValueError for an unknown type or too much data.
    """
    if event_type not in EVENT_TYPES:
        raise ValueError(f"{event_type} is no type of webhook event")
    endpoints = selectors.subscribed(organization_id, event_type)
    if not endpoints:
        return
    event = _event(organization_id, event_type, key, data, now)
    for endpoint in endpoints:
        if not WebhookDelivery.objects.filter(endpoint=endpoint, event=event).exists():
            _deliver(endpoint, event, now)


def purge(*, now: datetime) -> int:
    """Delete messages older than 60 days with their log; return their number."""
    before = now - RETENTION
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in PURGE:
            cursor.execute(statement, [before])
        return cursor.rowcount


def _event(
    organization_id: str, event_type: str, key: str, data: dict[str, Any], now: datetime
) -> WebhookEvent:
    at = now.astimezone(UTC).isoformat().replace("+00:00", "Z")
    body = json.dumps({"type": event_type, "timestamp": at, "data": data}, ensure_ascii=False)
    if len(body) > BODY_CHARACTERS_MAX:
        raise ValueError(f"a webhook has at most {BODY_CHARACTERS_MAX} characters")
    event = WebhookEvent(
        organization_id=organization_id, event_type=event_type, key=key, body=body, created_at=now
    )
    WebhookEvent.objects.bulk_create([event], ignore_conflicts=True)
    return WebhookEvent.objects.get(organization_id=organization_id, event_type=event_type, key=key)


def _deliver(
    endpoint: WebhookEndpoint, event: WebhookEvent, now: datetime, *, is_repeat: bool = False
) -> WebhookDelivery:
    delivery = WebhookDelivery.objects.create(
        endpoint=endpoint, event=event, is_repeat=is_repeat, created_at=now, next_at=now
    )
    enqueue(
        kind=KIND,
        key=delivery.id,
        payload={"endpoint_id": endpoint.id, "event_id": event.id},
        organization_id=endpoint.organization_id,
        now=now,
        lane=f"{KIND}:{endpoint.id}",
    )
    return delivery


def _enabled(actor: Actor, endpoint: WebhookEndpoint, now: datetime) -> WebhookEndpoint:
    require(actor, endpoint.organization_id, Permission.WEBHOOKS_WRITE)
    endpoint = selectors.locked_endpoint(endpoint.organization, endpoint.id)
    if not endpoint.is_receiving:
        raise Conflict("The webhook endpoint is disabled: enable it first.")
    if selectors.manual_count(endpoint, now - MINUTE) >= MANUAL_MAX:
        raise Conflict(f"{MANUAL_MAX} messages were resent within a minute. Try again in a minute.")
    return endpoint


def _issue_secret(endpoint: WebhookEndpoint) -> str:
    secret = signing.new_secret()
    WebhookSecret.objects.create(endpoint=endpoint, sealed=signing.encrypted(endpoint, secret))
    return secret


def _record(actor: Actor, action: str, endpoint: WebhookEndpoint, **details: Any) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="webhook_endpoint",
        target_id=endpoint.id,
        target_name=endpoint.host,
        organization_id=endpoint.organization_id,
        details=details,
    )


def checked_event_types(values: Sequence[str]) -> list[str]:
    """Return event types in a fixed order, each once. Raises InvalidValue."""
    if not values or not set(values) <= EVENT_TYPES.keys():
        raise InvalidValue(
            f"event_types must be some of {', '.join(EVENT_TYPES)}.", param="event_types"
        )
    return [each for each in EVENT_TYPES if each in values]


def checked_description(value: str) -> str:
    """Return a description without surrounding blanks. Raises InvalidValue."""
    stripped = value.strip()
    if len(stripped) > DESCRIPTION_MAX or not stripped.isprintable():
        raise InvalidValue(
            f"description must have at most {DESCRIPTION_MAX} printable characters.",
            param="description",
        )
    return stripped


def listen() -> None:
    """Delete the endpoints of deleted organizations from now on."""
    organization_deletion_previewed.connect(
        _on_deletion_previewed, dispatch_uid="control.webhooks.services.asked"
    )
    organization_deleted.connect(_on_deleted, dispatch_uid="control.webhooks.services")


def _on_deletion_previewed(
    sender: object, organization: Organization, **_: Any
) -> list[DeletionEffect]:
    count = selectors.endpoints(organization).count()
    if not count:
        return []
    words = ngettext(
        "%(count)d webhook endpoint is deleted.", "%(count)d webhook endpoints are deleted.", count
    )
    return [DeletionEffect(words % {"count": count})]


def _on_deleted(
    sender: object, organization: Organization, now: datetime, **_: Any
) -> list[FeedRef]:
    ended = selectors.endpoints(organization)
    WebhookSecret.objects.filter(endpoint__in=ended).delete()
    ended.update(is_enabled=False, deleted_at=now)
    return []
