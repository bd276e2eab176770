"""An organization's balance and credit, and how long they will last by the rate that alerts use."""

from dataclasses import dataclass
from datetime import datetime

from billing.alerts.selectors import nanos_per_day
from billing.credit.credits import Credit, credit_by_grant, forecast
from billing.credit.selectors import LimitStatus, funds, grants, owed_nanos
from control.organizations.models import Organization

CREDITS_MAX = 20


@dataclass(frozen=True, slots=True)
class BalanceForecast:
    """Money in nano-dollars; `days` is whole days until it is used up or expired, None without
    usage. `unused_nanos` expires before it is used."""

    balance_nanos: int
    held_nanos: int
    binding_limit: LimitStatus
    credit_limit_nanos: int
    is_credit_limit_suspended: bool
    owed_nanos: int
    per_day_nanos: int
    days: int | None
    unused_nanos: int
    credits: list[Credit]

    @property
    def credit_left_nanos(self) -> int:
        """The part of the credit limit that is not owed yet, never below 0."""
        return max(self.credit_limit_nanos + min(self.balance_nanos, 0), 0)


def balance_forecast(organization: Organization, now: datetime) -> BalanceForecast:
    """Return an organization's balance and forecast, and its latest credit, active first."""
    money, per_day_nanos = funds(organization, now), nanos_per_day(organization, now)
    latest = grants(organization).values_list("id", flat=True)[:CREDITS_MAX]
    credits = credit_by_grant(organization.id, latest, now, balance=money.balance_nanos)
    ahead = forecast(credits, per_day_nanos, now)
    return BalanceForecast(
        balance_nanos=money.balance_nanos,
        held_nanos=money.held_nanos,
        binding_limit=money.binding_limit,
        credit_limit_nanos=money.credit_limit_nanos,
        is_credit_limit_suspended=money.is_credit_limit_suspended,
        owed_nanos=max(owed_nanos(organization.id), 0),
        per_day_nanos=per_day_nanos,
        days=ahead.days,
        unused_nanos=ahead.unused_nanos,
        credits=sorted(credits, key=lambda one: not one.is_active)[:CREDITS_MAX],
    )
