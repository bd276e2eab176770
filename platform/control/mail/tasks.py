"""What the worker does for the mailbox."""

from celery import shared_task
from django.utils import timezone

from control.mail import backend


@shared_task(name="mail.trim")
def trim() -> int:
    """Delete old letters."""
    return backend.trim(now=timezone.now())
