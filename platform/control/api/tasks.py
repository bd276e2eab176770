"""What the worker does for the management API."""

from celery import shared_task
from django.utils import timezone

from control.api.once import forget


@shared_task(name="api.forget_requests")
def forget_requests() -> int:
    """Forget idempotent requests of over a day ago; running twice forgets nothing twice."""
    return forget(now=timezone.now())
