"""Budgets by name: what the change feed tells a gateway to hold on, and billing keeps limits of.

An organization has two, its balance (one period, without end) and its monthly limit; a project
and a key have a monthly limit each. The ids follow from the id of what is limited, so that control
publishes them without knowing billing's rows.
"""

from datetime import UTC, datetime
from typing import Literal

BudgetKind = Literal["balance", "organization", "project", "key"]
_MONTHLY: dict[str, BudgetKind] = {"org": "organization", "proj": "project", "key": "key"}
LIFETIME_STARTS_AT = datetime(1970, 1, 1, tzinfo=UTC)
"""The start of the one period of a balance."""


def balance_budget_id(organization_id: str) -> str:
    """Return the budget that holds what an organization may spend in all."""
    return f"balance:{organization_id}"


def limit_budget_id(limited_id: str) -> str:
    """Return the budget of the monthly limit of an organization, a project or a key."""
    return f"limit:{limited_id}"


def limited_id(budget_id: str) -> str:
    """Return the id of what a budget limits."""
    return budget_id.partition(":")[2]


def kind_of(budget_id: str) -> BudgetKind | None:
    """Return what a budget limits; None for what is no budget's id."""
    prefix, _, limited = budget_id.partition(":")
    if prefix == "balance" and limited:
        return "balance"
    return _MONTHLY.get(limited.partition("_")[0]) if prefix == "limit" else None


def period_start(budget_id: str, at: datetime) -> datetime:
    """Return the start of the period of a budget that a moment lies in.

    Worked example: `limit:org_a` at 2026-11-21 14:00 UTC is in the period from 2026-11-01;
    `balance:org_a` has one period only, from 1970 on.
    """
    if kind_of(budget_id) == "balance":
        return LIFETIME_STARTS_AT
    month = at.astimezone(UTC)
    return month.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def period_end(budget_id: str, starts_at: datetime) -> datetime | None:
    """Return the end of a period, half open; None for a balance, which has no end."""
    if kind_of(budget_id) == "balance":
        return None
    year, month = divmod(starts_at.year * 12 + starts_at.month, 12)
    return starts_at.replace(year=year, month=month + 1)
