"""An organization's balance and credit, and how long they will last by the rate that alerts use."""

from dataclasses import dataclass
from datetime import datetime

from billing.alerts.selectors import nanos_per_day
from billing.credit.credits import Credit, credit_of, forecast, open_credit
from billing.credit.selectors import LimitStatus, funds, grants, owed_nanos
from control.organizations.models import Organization

CREDITS_MAX = 20


@dataclass(frozen=True, slots=True)
class BalanceForecast:
    """Money in nano-dollars; `days` is whole days until it is used up or expired, None without
    usage. `unused_nanos` expires before it is used."""

    balance_nanos: int
    held_nanos: int
    binding_limit: LimitStatus | None
    owed_nanos: int
    per_day_nanos: int
    days: int | None
    unused_nanos: int
    credits: list[Credit]


def balance_forecast(organization: Organization, now: datetime) -> BalanceForecast:
    """Return an organization's balance and forecast, and its latest credit, active first."""
    money, per_day_nanos = funds(organization, now), nanos_per_day(organization, now)
    left = open_credit([organization.id], now)[organization.id]
    latest = credit_of(grants(organization)[:CREDITS_MAX], left, now)
    active = [one for one in left if one.is_active]
    ahead = forecast(active, per_day_nanos, now)
    return BalanceForecast(
        balance_nanos=money.balance_nanos,
        held_nanos=money.held_nanos,
        binding_limit=money.binding_limit,
        owed_nanos=max(owed_nanos(organization.id), 0),
        per_day_nanos=per_day_nanos,
        days=ahead.days,
        unused_nanos=ahead.unused_nanos,
        credits=[*active, *(one for one in latest if not one.is_active)][:CREDITS_MAX],
    )
