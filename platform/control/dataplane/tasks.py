"""What the worker does for idempotency keys."""

from celery import shared_task
from django.utils import timezone

from control.dataplane.idempotency import purge


@shared_task(name="idempotency.forget")
def forget_keys() -> int:
    """Forget keys and answers of over a day ago; running twice forgets nothing twice."""
    return purge(now=timezone.now())
