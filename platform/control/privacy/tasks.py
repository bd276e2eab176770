"""What the worker does for people's data."""

from celery import shared_task
from django.utils import timezone

from control.privacy import services


@shared_task(name="privacy.run_waiting")
def run_waiting() -> None:
    """Do what waits."""
    services.run_waiting(now=timezone.now())


@shared_task(name="privacy.trim")
def trim() -> None:
    """Delete old copies."""
    services.trim(now=timezone.now())
