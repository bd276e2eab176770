"""Webhook endpoints, their secrets, the messages sent to them, and the event types that customers
subscribe to."""

from urllib.parse import urlsplit

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.db.models import ID_MAX, new_id
from control.egress import URL_MAX
from control.organizations.models import Organization

DESCRIPTION_MAX = 200
REASON_MAX = 200
EVENT_TYPES = {
    "balance.low": _("The credit balance fell below an alert threshold or was used up."),
    "credit.expiring": _("Credit expires soon."),
    "spending_limit.reached": _("Spending reached a percentage of a limit."),
    "spending.unusual": _("Spending is far above the usual amount."),
    "invoice.finalized": _("An invoice was issued."),
    "invoice.paid": _("An invoice was paid in full."),
    "payment.succeeded": _("A payment was received."),
    "payment.failed": _("A payment was declined."),
    "api_key.created": _("An API key was created."),
}
TEST_EVENT = "webhook.test"
"""The event that the test button sends; it has no subscribers."""


def new_endpoint_id() -> str:
    return new_id("whe")


def new_event_id() -> str:
    """Return a new id of a message, by which receivers recognize a repeat."""
    return new_id("msg")


def new_delivery_id() -> str:
    return new_id("whd")


class EndpointState(models.TextChoices):
    """Whether an endpoint receives events."""

    ENABLED = "enabled", _("Enabled")
    FAILING = "failing", _("Failing")
    DISABLED = "disabled", _("Disabled")
    DISABLED_BY_PLATFORM = "disabled_by_platform", _("Disabled by the platform")
    DELETED = "deleted", _("Deleted")


class WebhookEndpoint(models.Model):
    """A customer's URL and the event types that it receives. `failing_since` is the first failure
    after the last success."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_endpoint_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="endpoints")
    url = models.CharField(max_length=URL_MAX)
    description = models.CharField(max_length=DESCRIPTION_MAX, blank=True)
    event_types = ArrayField(models.CharField(max_length=64))
    is_enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=REASON_MAX, blank=True)
    """The reason if the platform disabled it; empty if a member did."""
    failing_since = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "webhooks_endpoint"
        constraints = [
            models.CheckConstraint(
                condition=Q(event_types__len__gte=1), name="endpoint_is_told_something"
            ),
            models.CheckConstraint(
                condition=Q(deleted_at__isnull=True) | Q(is_enabled=False),
                name="deleted_endpoint_is_disabled",
            ),
        ]
        indexes = [
            models.Index(
                fields=["organization", "created_at"],
                name="endpoint_by_organization",
                condition=Q(deleted_at__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def state(self) -> EndpointState:
        """Whether it receives events, and else who stopped it."""
        if self.deleted_at is not None:
            return EndpointState.DELETED
        if not self.is_enabled:
            by_platform = bool(self.disabled_reason)
            return EndpointState.DISABLED_BY_PLATFORM if by_platform else EndpointState.DISABLED
        return EndpointState.ENABLED if self.failing_since is None else EndpointState.FAILING

    @property
    def is_receiving(self) -> bool:
        """Whether messages are sent to it, even if they have failed of late."""
        return self.state in (EndpointState.ENABLED, EndpointState.FAILING)

    @property
    def host(self) -> str:
        """The host of the URL, without path and query."""
        return urlsplit(self.url).netloc


class WebhookSecret(models.Model):
    """A signing secret of an endpoint, encrypted (`control/encryption.py`). The newest has no end;
    the previous one also signs until its end."""

    endpoint = models.ForeignKey(WebhookEndpoint, models.CASCADE, related_name="secrets")
    sealed = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "webhooks_secret"
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint"],
                name="endpoint_has_one_newest_secret",
                condition=Q(expires_at__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return f"secret {self.pk} of {self.endpoint_id}"


class WebhookEvent(models.Model):
    """One message, byte for byte as it is signed. Written once."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_event_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+")
    event_type = models.CharField(max_length=64)
    key = models.CharField(max_length=200)
    body = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "webhooks_event"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "event_type", "key"], name="webhook_event_is_unique"
            )
        ]
        indexes = [models.Index(fields=["created_at"], name="webhook_event_by_time")]
        triggers = [pgtrigger.Protect(name="webhook_event_stays", operation=pgtrigger.Update)]

    def __str__(self) -> str:
        return f"{self.event_type} {self.id}"


class WebhookDelivery(models.Model):
    """A message to an endpoint: waiting, delivered, or failed for good."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_delivery_id)
    endpoint = models.ForeignKey(WebhookEndpoint, models.CASCADE, related_name="deliveries")
    event = models.ForeignKey(WebhookEvent, models.CASCADE, related_name="deliveries")
    is_repeat = models.BooleanField(default=False)
    """Whether a person requested it again."""
    created_at = models.DateTimeField(default=timezone.now)
    delivered_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    attempt_count = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "webhooks_delivery"
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint", "event"],
                name="delivery_is_unique",
                condition=Q(is_repeat=False),
            ),
            models.CheckConstraint(
                condition=Q(delivered_at__isnull=True) | Q(failed_at__isnull=True),
                name="delivery_ends_once",
            ),
        ]
        indexes = [
            models.Index(fields=["endpoint", "-created_at"], name="delivery_by_endpoint"),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def status(self) -> str:
        """`delivered`, `failed` or `waiting`."""
        if self.delivered_at is not None:
            return "delivered"
        return "failed" if self.failed_at is not None else "waiting"


class WebhookAttempt(models.Model):
    """One attempt. The response's body is neither read nor stored. Written once."""

    delivery = models.ForeignKey(WebhookDelivery, models.CASCADE, related_name="attempts")
    created_at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    status = models.PositiveSmallIntegerField(null=True)
    """The response status; None without a response."""
    error = models.CharField(max_length=REASON_MAX, blank=True)

    class Meta:
        db_table = "webhooks_attempt"
        ordering = ["id"]
        triggers = [pgtrigger.Protect(name="attempt_stays", operation=pgtrigger.Update)]

    def __str__(self) -> str:
        return f"{self.delivery_id}: {self.status or self.error}"
