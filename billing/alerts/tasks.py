"""What alerts do by themselves. Each alert is raised once, however often a task runs."""

from celery import shared_task
from django.utils import timezone

from billing.alerts.spending import sum_day, sum_days
from billing.alerts.telling import look, look_for_unusual


@shared_task(name="alerts.look")
def look_at_budgets() -> None:
    """Tell what budgets and balances came to."""
    look(now=timezone.now())


@shared_task(name="alerts.look_at_spending")
def look_at_spending() -> None:
    """Sum up the running day, and tell whose spending is far above the usual."""
    now = timezone.now()
    sum_day(now.date())
    look_for_unusual(now=now)


@shared_task(name="alerts.sum_days")
def sum_last_days() -> None:
    """Sum up the days before anew: usage arrives late."""
    sum_days(now=timezone.now())
