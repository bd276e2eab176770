"""What invoicing does by itself. Each step is made once, however often a task runs."""

from datetime import datetime
from time import monotonic

import structlog
from celery import shared_task
from django.utils import timezone

from billing.invoicing.closes import newest_begun, organizations_behind, unfinished_closes
from billing.invoicing.periods import Period, last_period
from billing.invoicing.services.closing import close_month
from billing.invoicing.services.settling import settle_invoices
from control.errors import Conflict
from control.permissions import Actor

RUN_SECONDS = 150
"""A run ends long before a task's limit; the next one goes on."""

logger = structlog.get_logger(__name__)


@shared_task(name="invoicing.close_months")
def close_months() -> None:
    """Go on with the months that are being closed, and begin with the last one once it may be."""
    now, until = timezone.now(), monotonic() + RUN_SECONDS
    for period in due_months(now):
        try:
            close_month(
                period=period,
                actor=Actor.for_system("billing"),
                now=now,
                goes_on=lambda: monotonic() < until,
            )
        except Conflict as error:
            logger.info("month_not_closable", period=str(period), reason=error.message)


@shared_task(name="invoicing.settle")
def settle() -> None:
    """Let invoices follow what settled receivables without telling them."""
    for organization_id in organizations_behind():
        settle_invoices(organization_id=organization_id, now=timezone.now())


def due_months(now: datetime) -> list[Period]:
    """Return the months to close, oldest first: those begun, and all that ended since then."""
    last, newest = last_period(now), newest_begun()
    period = newest.after if newest else last
    months = unfinished_closes()
    while period <= last:
        months.append(period)
        period = period.after
    return months
