"""Reads webhook endpoints, their deliveries and attempts."""

from datetime import datetime

from django.db.models import F, Q, QuerySet

from control.db.models import get_or_not_found
from control.organizations.models import Organization
from control.webhooks.models import (
    TEST_EVENT,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSecret,
)


def endpoints(organization: Organization) -> QuerySet[WebhookEndpoint]:
    """Return the endpoints of an organization, the newest first."""
    found = WebhookEndpoint.objects.select_related("organization")
    return found.filter(organization=organization, deleted_at__isnull=True).order_by(
        "-created_at", "id"
    )


def endpoint(organization: Organization, endpoint_id: str) -> WebhookEndpoint:
    """Return one endpoint. Raises ObjectNotFound."""
    return get_or_not_found(endpoints(organization), "webhook endpoint", id=endpoint_id)


def locked_endpoint(organization: Organization, endpoint_id: str) -> WebhookEndpoint:
    """Return an endpoint with its row locked until the transaction ends. Raises ObjectNotFound."""
    rows = endpoints(organization).select_for_update(of=("self",), no_key=True)
    return get_or_not_found(rows, "webhook endpoint", id=endpoint_id)


def subscribed(organization_id: str, event_type: str) -> list[WebhookEndpoint]:
    """Return the endpoints that receive a type of event."""
    found = WebhookEndpoint.objects.filter(
        organization_id=organization_id,
        is_enabled=True,
        deleted_at__isnull=True,
        event_types__contains=[event_type],
    )
    return list(found.order_by("id"))


def valid_secrets(endpoint: WebhookEndpoint, now: datetime) -> list[WebhookSecret]:
    """Return the secrets that sign an endpoint's messages at `now`, the newest first."""
    rows = WebhookSecret.objects.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now))
    return list(rows.filter(endpoint=endpoint).order_by("-id"))


def deliveries(endpoint: WebhookEndpoint) -> QuerySet[WebhookDelivery]:
    """Return the deliveries to an endpoint, the newest first."""
    found = WebhookDelivery.objects.select_related("event", "endpoint")
    return found.filter(endpoint=endpoint).order_by("-created_at", "id")


def manual_count(endpoint: WebhookEndpoint, since: datetime) -> int:
    """Return the number of tests and repeats that people sent to an endpoint since a time."""
    by_hand = Q(is_repeat=True) | Q(event__event_type=TEST_EVENT)
    return deliveries(endpoint).filter(by_hand, created_at__gt=since).count()


def delivery(endpoint: WebhookEndpoint, delivery_id: str) -> WebhookDelivery:
    """Return one delivery to an endpoint. Raises ObjectNotFound."""
    return get_or_not_found(deliveries(endpoint), "delivery", id=delivery_id)


def attempts(delivery: WebhookDelivery) -> QuerySet[WebhookAttempt]:
    """Return the attempts of a delivery, the earliest first."""
    return WebhookAttempt.objects.filter(delivery=delivery).order_by("id")


def all_endpoints() -> QuerySet[WebhookEndpoint]:
    """Return every endpoint that is not deleted, for operators: the failing first."""
    rows = WebhookEndpoint.objects.select_related("organization").filter(deleted_at__isnull=True)
    return rows.order_by(F("failing_since").asc(nulls_last=True), "-created_at")
