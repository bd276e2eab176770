"""What the worker does for webhooks, beside the outbox."""

from celery import shared_task
from django.utils import timezone

from control.webhooks import services


@shared_task(name="webhooks.trim")
def trim() -> int:
    """Delete messages of long ago."""
    return services.trim(now=timezone.now())
