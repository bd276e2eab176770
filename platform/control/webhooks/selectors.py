"""Questions about endpoints and what was sent to them."""

from datetime import datetime

from django.db.models import F, Q, QuerySet

from control.errors import ObjectNotFound
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
    found = endpoints(organization).filter(id=endpoint_id).first()
    if found is None:
        raise ObjectNotFound("There is no such webhook endpoint.")
    return found


def locked_endpoint(organization: Organization, endpoint_id: str) -> WebhookEndpoint:
    """Return an endpoint with its row locked until the transaction ends. Raises ObjectNotFound."""
    rows = endpoints(organization).select_for_update(of=("self",), no_key=True)
    found = rows.filter(id=endpoint_id).first()
    if found is None:
        raise ObjectNotFound("There is no such webhook endpoint.")
    return found


def subscribed(organization_id: str, kind: str) -> list[WebhookEndpoint]:
    """Return the endpoints that are told of a kind."""
    found = WebhookEndpoint.objects.filter(
        organization_id=organization_id,
        is_enabled=True,
        deleted_at__isnull=True,
        kinds__contains=[kind],
    )
    return list(found.order_by("id"))


def valid_secrets(endpoint: WebhookEndpoint, now: datetime) -> list[WebhookSecret]:
    """Return what its messages are signed with at `now`, the newest first."""
    rows = WebhookSecret.objects.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now))
    return list(rows.filter(endpoint=endpoint).order_by("-id"))


def deliveries(endpoint: WebhookEndpoint) -> QuerySet[WebhookDelivery]:
    """Return what was sent to an endpoint, the newest first."""
    found = WebhookDelivery.objects.select_related("event", "endpoint")
    return found.filter(endpoint=endpoint).order_by("-created_at", "id")


def manual_count(endpoint: WebhookEndpoint, since: datetime) -> int:
    """Return how many tests and repeats people sent to an endpoint since a moment."""
    by_hand = Q(is_repeat=True) | Q(event__kind=TEST_EVENT)
    return deliveries(endpoint).filter(by_hand, created_at__gt=since).count()


def delivery(endpoint: WebhookEndpoint, delivery_id: str) -> WebhookDelivery:
    """Return one delivery to an endpoint. Raises ObjectNotFound."""
    found = deliveries(endpoint).filter(id=delivery_id).first()
    if found is None:
        raise ObjectNotFound("There is no such delivery.")
    return found


def attempts(delivery: WebhookDelivery) -> QuerySet[WebhookAttempt]:
    """Return the calls of a delivery, the first first."""
    return WebhookAttempt.objects.filter(delivery=delivery).order_by("id")


def all_endpoints() -> QuerySet[WebhookEndpoint]:
    """Return every endpoint that was not deleted, for operators: the failing first."""
    rows = WebhookEndpoint.objects.select_related("organization").filter(deleted_at__isnull=True)
    return rows.order_by(F("failing_since").asc(nulls_last=True), "-created_at")
