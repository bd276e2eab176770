"""What the worker does for tenants."""

from celery import shared_task
from django.utils import timezone

from control.tenants.sign_in.sessions import forget_ended


@shared_task(name="tenants.forget_ended_sessions")
def forget_ended_sessions() -> None:
    """Delete sessions whose time is over."""
    forget_ended(now=timezone.now())
