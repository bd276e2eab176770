"""What collection does by itself. Each step is taken once, however often a task runs."""

from celery import shared_task
from django.utils import timezone

from billing.collection.services.looking import look, wake_missed


@shared_task(name="collection.look")
def look_at_overdue() -> None:
    """Take the steps that are due."""
    look(now=timezone.now())


@shared_task(name="collection.look_for_missed")
def look_for_missed() -> None:
    """Find who is overdue and would not be looked at."""
    wake_missed(now=timezone.now())
