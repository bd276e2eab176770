"""Recurring work for the cockpit."""

from celery import shared_task

from billing.cockpit import revenue


@shared_task(name="cockpit.keep_revenue")
def keep_revenue() -> None:
    """Sum the revenue of days that were sealed."""
    revenue.keep_revenue()
