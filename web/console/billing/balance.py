"""An organization's balance and how long it will last, by the rate that alerts also use."""

from dataclasses import dataclass
from datetime import datetime

from billing.alerts.selectors import nanos_per_day
from billing.credit.selectors import LimitStatus, funds, owed_nanos
from control.organizations.models import Organization


@dataclass(frozen=True, slots=True)
class BalanceForecast:
    """Money in nano-dollars; `days` is whole days until it is used up, None without usage."""

    balance_nanos: int
    held_nanos: int
    binding_limit: LimitStatus | None
    owed_nanos: int
    per_day_nanos: int
    days: int | None


def balance_forecast(organization: Organization, now: datetime) -> BalanceForecast:
    """Return an organization's balance and forecast."""
    money, per_day_nanos = funds(organization, now), nanos_per_day(organization, now)
    left_nanos = max(money.balance_nanos, 0)
    return BalanceForecast(
        balance_nanos=money.balance_nanos,
        held_nanos=money.held_nanos,
        binding_limit=money.binding_limit,
        owed_nanos=max(owed_nanos(organization.id), 0),
        per_day_nanos=per_day_nanos,
        days=left_nanos // per_day_nanos if per_day_nanos else None,
    )
