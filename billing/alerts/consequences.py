"""What a spending limit stops as soon as it is set, for the console, and for the admin, which asks
by a signal."""

from datetime import datetime

from django.utils.translation import gettext

from billing.alerts.selectors import spent_nanos
from control.organizations.models import Organization
from control.organizations.signals import limit_previewed
from serving.contract.budget import limit_budget_id, period_end, period_start
from serving.contract.money import exact_dollars

MOMENT = "{:%Y-%m-%d %H:%M:%S} UTC"


def listen() -> None:
    """Tell what an organization's monthly limit would stop."""
    limit_previewed.connect(_on_limit_previewed, dispatch_uid="billing.alerts.consequences")


def zero_limit_words(name: str) -> str:
    """Return what a hard limit of nothing stops."""
    words = gettext("With a limit of $0.00, every request of %(name)s is refused.")
    return words % {"name": name}


def limit_consequence(
    organization: Organization, budget_id: str, name: str, limit_nanos: int, now: datetime
) -> str:
    """Return what a hard limit of `name` stops as soon as it is set; empty if it stops nothing."""
    if limit_nanos == 0:
        return zero_limit_words(name)
    spent = spent_nanos(organization, budget_id, now)
    if spent < limit_nanos:
        return ""
    starts_at = period_start(budget_id, now)
    words = gettext(
        "%(name)s has spent %(spent)s since %(start)s. With a limit of %(limit)s, its requests are"
        " refused until %(end)s."
    )
    return words % {
        "name": name,
        "spent": exact_dollars(spent),
        "limit": exact_dollars(limit_nanos),
        "start": MOMENT.format(starts_at),
        "end": MOMENT.format(period_end(budget_id, starts_at) or starts_at),
    }


def _on_limit_previewed(
    sender: object, organization: Organization, limit_nanos: int, now: datetime, **_: object
) -> str:
    budget_id = limit_budget_id(organization.id)
    return limit_consequence(organization, budget_id, organization.name, limit_nanos, now)
