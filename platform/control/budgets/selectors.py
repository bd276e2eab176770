"""Questions about limits of spending, wherever they are kept."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db.models import Q, QuerySet

from control.budgets.models import SpendLimit
from control.errors import ObjectNotFound
from control.keys import selectors as keys
from control.keys.models import ApiKey
from control.tenants import selectors as tenants
from control.tenants.models import Organization, Project
from serving.contract.budget import (
    LIMIT_PERIODS,
    BudgetKind,
    LimitPeriod,
    kind_of,
    limit_budget_id,
    limited_id,
)

Owner = Organization | Project | ApiKey
"""Who may be limited."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of spending as its owner reads it; `kind` and `name` are of who is limited."""

    budget_id: str
    kind: BudgetKind
    limited_id: str
    name: str
    period: LimitPeriod
    limit_nanos: int
    is_hard: bool
    created_at: datetime | None = None

    @property
    def enforcement(self) -> Literal["hard", "soft"]:
        """Whether it refuses or only tells."""
        return "hard" if self.is_hard else "soft"


def owners(organization: Organization, projects: Iterable[Project] | None = None) -> list[Owner]:
    """Return who may be limited in an organization: itself, its projects (where they are not at
    hand already) and its keys."""
    return [
        organization,
        *(tenants.projects(organization) if projects is None else projects),
        *_keys(organization),
    ]


def limits(organization: Organization, among: Iterable[Owner] | None = None) -> list[Limit]:
    """Return all limits that are in force in an organization, or of some of its `owners`: its own
    first, then its projects', then its keys', each by month, week, day."""
    further: dict[str, list[SpendLimit]] = defaultdict(list)
    for row in SpendLimit.objects.filter(organization=organization):
        further[row.limited_id].append(row)
    found = _limited(organization, further) if among is None else among
    return [one for owner in found for one in _of_owner(owner, further[owner.id])]


def limit(organization: Organization, budget_id: str) -> Limit:
    """Return one limit of an organization. Raises ObjectNotFound."""
    limited = limited_id(budget_id)
    further = SpendLimit.objects.filter(organization=organization, limited_id=limited)
    for owner in _named(organization, limited):
        for one in _of_owner(owner, further):
            if one.budget_id == budget_id:
                return one
    raise ObjectNotFound("There is no such budget.")


def locked_owner(organization: Organization, owner_id: str) -> Owner:
    """Return who is limited, that row locked until the transaction ends. Raises ObjectNotFound."""
    kind = kind_of(limit_budget_id(owner_id))
    if kind == "project":
        return tenants.locked_project(organization, owner_id)
    if kind == "key":
        return keys.locked_key(organization, owner_id)
    if owner_id != organization.id:
        raise ObjectNotFound("There is no such organization, project or API key.")
    return tenants.locked_organization(owner_id)


def _keys(organization: Organization) -> QuerySet[ApiKey]:
    return keys.keys(organization).filter(project__archived_at__isnull=True)


def _limited(organization: Organization, further: Collection[str]) -> list[Owner]:
    """Return who is limited: by the month in their own row, or by rows that name these ids."""
    is_limited = Q(spend_limit_nanos__isnull=False) | Q(id__in=further)
    return [
        organization,
        *tenants.projects(organization).filter(is_limited),
        *_keys(organization).filter(is_limited),
    ]


def _named(organization: Organization, limited: str) -> list[Owner]:
    """Return the one of `owners` that has this id, if there is one."""
    if limited == organization.id:
        return [organization]
    projects, its_keys = tenants.projects(organization), _keys(organization)
    return [*projects.filter(id=limited), *its_keys.filter(id=limited)]


def _of_owner(owner: Owner, further: Iterable[SpendLimit]) -> list[Limit]:
    """Return the limits of an owner, the month's first: `further` are those beside its own row."""
    kind = kind_of(limit_budget_id(owner.id))
    if kind is None:
        return []
    found: list[Limit] = []
    if owner.spend_limit_nanos is not None:
        month, nanos = limit_budget_id(owner.id), owner.spend_limit_nanos
        found.append(Limit(month, kind, owner.id, owner.name, "month", nanos, is_hard=True))
    by_period = {row.period: row for row in further}
    for period in LIMIT_PERIODS:
        if row := by_period.get(period):
            found.append(
                Limit(
                    budget_id=row.budget_id,
                    kind=kind,
                    limited_id=owner.id,
                    name=owner.name,
                    period=period,
                    limit_nanos=row.limit_nanos,
                    is_hard=row.is_hard,
                    created_at=row.created_at,
                )
            )
    return found
