"""What the worker does for the mailbox."""

from celery import shared_task
from django.utils import timezone

from control.mail import mailbox


@shared_task(name="mail.trim")
def trim() -> int:
    """Delete old letters."""
    return mailbox.trim(now=timezone.now())
