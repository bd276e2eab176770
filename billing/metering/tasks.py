"""Recurring work on usage events."""

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from billing.metering.partitions import ensure_days

DAYS_AHEAD = 7


@shared_task(name="metering.make_partitions")
def make_partitions() -> None:
    """Make the partitions of the coming days, so that no batch has to."""
    today = timezone.now().date()
    ensure_days(today + timedelta(days=step) for step in range(DAYS_AHEAD + 1))
