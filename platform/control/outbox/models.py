"""Outbox messages: open until they are delivered or given up."""

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

KIND_MAX = 64
KEY_MAX = 200
ERROR_MAX = 200
OPEN = Q(delivered_at__isnull=True, given_up_at__isnull=True)
"""Not done yet; the SQL of `claims.py` repeats this condition."""


class OutboxMessage(models.Model):
    """A call to an external service, delivered at least once: the handler makes it idempotent by
    `key`.

    `lane` groups messages that fail together, such as those to one destination, so that they slow
    no others.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=KIND_MAX)
    key = models.CharField(max_length=KEY_MAX)
    payload = models.JSONField()
    organization_id = models.CharField(max_length=64, null=True)  # noqa: DJ001 - None is the platform's
    lane = models.CharField(max_length=KEY_MAX)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField()
    """When the attempts begin: the first due time, or the time of a requested retry."""
    due_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    claimed_until = models.DateTimeField(null=True)
    """Until then a worker has the message; after it, one that a dead worker had claimed is due
    again."""
    delivered_at = models.DateTimeField(null=True)
    given_up_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=ERROR_MAX, blank=True)

    class Meta:
        db_table = "outbox_message"
        constraints = [
            models.UniqueConstraint(fields=["kind", "key"], name="message_is_unique"),
            models.CheckConstraint(
                condition=Q(delivered_at__isnull=True) | Q(given_up_at__isnull=True),
                name="message_ends_once",
            ),
            models.CheckConstraint(
                condition=OPEN | Q(claimed_until__isnull=True), name="message_that_ended_is_free"
            ),
            models.CheckConstraint(
                condition=Q(due_at__gte=F("started_at")), name="message_is_due_after_its_start"
            ),
        ]
        indexes = [
            models.Index(
                fields=["kind", "lane", "due_at", "id"], name="message_by_lane", condition=OPEN
            ),
            models.Index(fields=["kind", "due_at"], name="message_by_due", condition=OPEN),
            models.Index(
                fields=["lane"], name="message_in_trouble", condition=OPEN & ~Q(last_error="")
            ),
            models.Index(
                fields=["claimed_until"],
                name="message_at_work",
                condition=OPEN & Q(claimed_until__isnull=False),
            ),
            models.Index(
                fields=["kind", "started_at"],
                name="message_undelivered",
                condition=Q(delivered_at__isnull=True),
            ),
            models.Index(
                fields=["delivered_at"],
                name="message_delivered",
                condition=Q(delivered_at__isnull=False),
            ),
            models.Index(
                fields=["given_up_at"],
                name="message_given_up",
                condition=Q(given_up_at__isnull=False),
            ),
        ]
        triggers = [
            pgtrigger.Protect(
                name="delivered_stays",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__delivered_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"

    @property
    def is_open(self) -> bool:
        """Whether the message is still to be delivered."""
        return self.delivered_at is None and self.given_up_at is None
