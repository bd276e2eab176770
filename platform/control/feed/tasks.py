"""What the worker does for the change feed."""

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from control.feed.services import compact

KEEP = timedelta(hours=24)
"""A reader that was away for longer starts again from a snapshot."""


@shared_task(name="feed.compact")
def compact_feed() -> int:
    """Remove overtaken changes; running twice removes nothing twice."""
    return compact(before=timezone.now() - KEEP)
