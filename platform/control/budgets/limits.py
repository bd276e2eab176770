"""The limits that gateways hold on, as the change feed names them."""

from collections.abc import Collection

from django.db.models import QuerySet

from control.budgets.models import SpendLimit
from control.tenants.models import Organization


def fine_budget_ids(limited: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the hard limits by the week and the day of organizations, projects or keys."""
    found: dict[str, tuple[str, ...]] = {}
    rows = SpendLimit.objects.filter(limited_id__in=limited, is_hard=True).order_by("budget_id")
    for owner, budget_id in rows.values_list("limited_id", "budget_id"):
        found[owner] = (*found.get(owner, ()), budget_id)
    return found


def fine_hard_limits(organization: Organization) -> QuerySet[SpendLimit]:
    """Return an organization's own hard limits by the week and the day."""
    return SpendLimit.objects.filter(limited_id=organization.id, is_hard=True)


def soft_budget_ids(budget_ids: Collection[str]) -> set[str]:
    """Return those of the budgets that only tell."""
    soft = SpendLimit.objects.filter(budget_id__in=budget_ids, is_hard=False)
    return set(soft.values_list("budget_id", flat=True))
