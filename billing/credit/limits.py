"""Limits: how much of a budget is left. Control's rows hold the limits, the books the balance."""

from dataclasses import dataclass
from datetime import datetime

from billing.credit.models import Budget, BudgetKind
from billing.credit.selectors import (
    balance_nanos,
    budget_of_id,
    charged_nanos,
    held_nanos,
    limited_key,
    limited_organization,
    limited_project,
    month_of,
)
from control.tenants.models import BillingMode
from serving.contract.lease import Refusal


@dataclass(frozen=True, slots=True)
class Headroom:
    """What may still be set aside (None without a limit), and why there is no more."""

    available_nanos: int | None
    code: Refusal


def find_budget(budget_id: str) -> Budget | None:
    """Return the budget of an organization, project or key, new ones unsaved; None for others."""
    known = budget_of_id(budget_id)
    if known is not None:
        return known
    if limited_organization(budget_id) is not None:
        return Budget(id=budget_id, kind=BudgetKind.ORGANIZATION, organization_id=budget_id)
    project = limited_project(budget_id)
    if project is not None:
        return Budget(
            id=budget_id, kind=BudgetKind.PROJECT, organization_id=project.organization_id
        )
    key = limited_key(budget_id)
    if key is not None:
        return Budget(id=budget_id, kind=BudgetKind.KEY, organization_id=key.organization_id)
    return None


def headroom(budget: Budget, now: datetime) -> Headroom:
    """Return limit - spent - held of a budget; exact while its organization's lock is held."""
    if budget.kind == BudgetKind.ORGANIZATION:
        return _of_organization(budget, now)
    if budget.kind == BudgetKind.PROJECT:
        project = limited_project(budget.id)
        limit_nanos = project.spend_limit_nanos if project else 0
        return Headroom(_left(budget, limit_nanos, now), "project_spend_limit_exceeded")
    key = limited_key(budget.id)
    limit_nanos = key.spend_limit_nanos if key else 0
    return Headroom(_left(budget, limit_nanos, now), "key_budget_exceeded")


def available_nanos(budget_id: str, now: datetime) -> int | None:
    """Return what new requests may still hold of a budget, never below 0; None without a limit."""
    budget = find_budget(budget_id)
    if budget is None:
        return 0
    available = headroom(budget, now).available_nanos
    return None if available is None else max(available, 0)


def _of_organization(budget: Budget, now: datetime) -> Headroom:
    organization = limited_organization(budget.id)
    if organization is None:
        return Headroom(0, "credit_balance_exhausted")
    monthly = Headroom(
        _left(budget, organization.spend_limit_nanos, now), "organization_spend_limit_exceeded"
    )
    if organization.billing_mode == BillingMode.POSTPAID:
        return monthly
    credit_nanos = balance_nanos(budget.id, now) - held_nanos(budget.id)
    if monthly.available_nanos is not None and monthly.available_nanos < credit_nanos:
        return monthly
    return Headroom(credit_nanos, "credit_balance_exhausted")


def _left(budget: Budget, limit_nanos: int | None, now: datetime) -> int | None:
    """Return what is left of a monthly limit. Held money counts in the month that asks."""
    if limit_nanos is None:
        return None
    return limit_nanos - charged_nanos(budget.id, month_of(now)) - held_nanos(budget.id)
