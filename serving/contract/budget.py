"""Budgets by name: what the change feed tells a gateway to hold on, and billing keeps limits of.

An organization has its balance (one period, without end); it, its projects and its keys may each
be limited by the month, the week and the day. The ids follow from the id of what is limited and
the length of the period, so that control publishes them without knowing billing's rows.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

BudgetKind = Literal["balance", "organization", "project", "key"]
LimitPeriod = Literal["month", "week", "day"]
Period = Literal["lifetime", "month", "week", "day"]
LIMIT_PERIODS: tuple[LimitPeriod, ...] = get_args(LimitPeriod)
LIFETIME_STARTS_AT = datetime(1970, 1, 1, tzinfo=UTC)
"""The start of the one period of a balance."""

_LIMITED: dict[str, BudgetKind] = {"org": "organization", "proj": "project", "key": "key"}
_SUFFIX: dict[LimitPeriod, str] = {"month": "", "week": ":week", "day": ":day"}
_PERIOD: dict[str, LimitPeriod] = {"": "month", "week": "week", "day": "day"}


def balance_budget_id(organization_id: str) -> str:
    """Return the budget that holds what an organization may spend in all."""
    return f"balance:{organization_id}"


def limit_budget_id(limited_id: str, period: LimitPeriod = "month") -> str:
    """Return the budget of a limit of an organization, a project or a key.

    Worked example: `limit:org_a` is by the month, `limit:org_a:day` by the day.
    """
    return f"limit:{limited_id}{_SUFFIX[period]}"


def limited_id(budget_id: str) -> str:
    """Return the id of what a budget limits."""
    return budget_id.partition(":")[2].partition(":")[0]


def kind_of(budget_id: str) -> BudgetKind | None:
    """Return what a budget limits; None for what is no budget's id."""
    prefix, _, rest = budget_id.partition(":")
    limited, _, suffix = rest.partition(":")
    if prefix == "balance" and limited and not suffix:
        return "balance"
    is_limit = prefix == "limit" and suffix in _PERIOD and not rest.endswith(":")
    return _LIMITED.get(limited.partition("_")[0]) if is_limit else None


def period_of(budget_id: str) -> Period:
    """Return how long a budget's periods are."""
    prefix, _, rest = budget_id.partition(":")
    return "lifetime" if prefix == "balance" else _PERIOD.get(rest.partition(":")[2], "month")


def is_fine(budget_id: str) -> bool:
    """Tell whether a budget's periods are shorter than a month."""
    return budget_id.endswith((":week", ":day"))


def period_start(budget_id: str, at: datetime) -> datetime:
    """Return the start of the period of a budget that a moment lies in: months, days, and weeks
    from Monday on, all of UTC.

    Worked example: of Sunday, 2026-11-22 at 14:00, `limit:org_a` is in the period from 2026-11-01,
    `limit:org_a:week` in the one from Monday, 2026-11-16; `balance:org_a` has one, from 1970 on.
    """
    period = period_of(budget_id)
    if period == "lifetime":
        return LIFETIME_STARTS_AT
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "month":
        return day.replace(day=1)
    return day - timedelta(days=day.weekday()) if period == "week" else day


def period_end(budget_id: str, starts_at: datetime) -> datetime | None:
    """Return the end of a period, half open; None for a balance, which has no end."""
    period = period_of(budget_id)
    if period == "lifetime":
        return None
    if period == "month":
        year, month = divmod(starts_at.year * 12 + starts_at.month, 12)
        return starts_at.replace(year=year, month=month + 1)
    return starts_at + timedelta(days=7 if period == "week" else 1)
