"""What Stripe told us, as it came: stored before anything is made of it."""

import pgtrigger
from django.db import models
from django.db.models import Q

from billing.payments.models.customers import Mode


class StripeEvent(models.Model):
    """One webhook. It names an object (`object_kind`, `object_id`), which is fetched again; what
    else it says is kept for people. Without an object it is of no interest and was ignored."""

    event_id = models.CharField(max_length=255, unique=True, db_collation="C")
    type = models.CharField(max_length=128)
    mode = models.CharField(max_length=4, choices=Mode)
    object_kind = models.CharField(max_length=16, blank=True)
    object_id = models.CharField(max_length=255, blank=True)
    api_version = models.CharField(max_length=64, blank=True)
    body = models.BinaryField()
    received_at = models.DateTimeField()
    due_at = models.DateTimeField()
    """When it is taken next: a worker that takes it moves this on, so that no other does."""
    attempt_count = models.IntegerField(default=0)
    processed_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=500, blank=True)

    class Meta:
        db_table = "payments_event"
        verbose_name = "webhook from Stripe"
        verbose_name_plural = "webhooks from Stripe"
        indexes = [
            models.Index(
                fields=["due_at"], name="stripe_event_due", condition=Q(processed_at__isnull=True)
            ),
            models.Index(fields=["received_at"], name="stripe_event_by_time"),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="stripe_event_stays",
                fields=["event_id", "type", "mode", "body", "received_at"],
            )
        ]

    def __str__(self) -> str:
        return self.event_id

    @property
    def is_ignored(self) -> bool:
        """Whether it is of a type that nothing here follows."""
        return self.object_kind == ""
