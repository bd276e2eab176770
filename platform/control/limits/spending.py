"""Adds, changes, removes and lists spending limits, wherever they are stored.

A change takes effect at once: gateways learn of it within a second, and lease balances beyond a
lowered limit are recalled.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

from django.db import transaction
from django.db.models import Q, QuerySet

from control.api_keys import selectors as keys
from control.api_keys.models import ApiKey
from control.api_keys.services import require_unrevoked, set_key_limit
from control.audit import services as audit
from control.errors import Conflict, InvalidValue, ObjectNotFound
from control.feed.services import FeedRef, publish
from control.limits.models import LimitPeriod, SpendingLimit
from control.organizations import selectors as tenants
from control.organizations.models import Organization, Project
from control.organizations.projects import set_project_limit
from control.organizations.services import set_organization_limit
from control.organizations.signals import limits_changed
from control.organizations.validators import NANOS_MAX
from control.permissions import Actor, Permission, require
from serving.contract.budget import (
    LIMIT_PERIODS,
    BudgetKind,
    kind_of,
    limit_budget_id,
    limited_id,
    period_of,
)
from serving.contract.budget import LimitPeriod as Period

Owner = Organization | Project | ApiKey
"""An organization, project or API key, which a spending limit applies to."""


@dataclass(frozen=True, slots=True)
class SpendingLimitRow:
    """A spending limit as its owner sees it; `kind` and `name` are those of the limited row."""

    budget_id: str
    kind: BudgetKind
    limited_id: str
    name: str
    period: Period
    limit_nanos: int
    is_hard: bool
    created_at: datetime | None = None

    @property
    def enforcement(self) -> Literal["hard", "soft"]:
        """Whether the limit refuses requests (hard) or only notifies (soft)."""
        return "hard" if self.is_hard else "soft"


def limit_owners(
    organization: Organization, projects: Iterable[Project] | None = None
) -> list[Owner]:
    """Return the possible owners of limits: the organization, its projects (read here unless given)
    and its keys."""
    return [
        organization,
        *(tenants.projects(organization) if projects is None else projects),
        *_keys(organization),
    ]


def spending_limits(
    organization: Organization, among: Iterable[Owner] | None = None
) -> list[SpendingLimitRow]:
    """Return the limits in force in an organization, or those of the owners in `among`: the
    organization's first, then its projects', then its keys', each by month, week, day."""
    further: dict[str, list[SpendingLimit]] = defaultdict(list)
    for row in SpendingLimit.objects.filter(organization=organization):
        further[row.limited_id].append(row)
    found = _limited_owners(organization, further) if among is None else among
    return [one for owner in found for one in _owner_limits(owner, further[owner.id])]


def spending_limit(organization: Organization, budget_id: str) -> SpendingLimitRow:
    """Return one limit of an organization. Raises ObjectNotFound."""
    limited = limited_id(budget_id)
    further = SpendingLimit.objects.filter(organization=organization, limited_id=limited)
    for owner in _owners_by_id(organization, limited):
        for one in _owner_limits(owner, further):
            if one.budget_id == budget_id:
                return one
    raise ObjectNotFound("There is no such spending limit.")


def locked_owner(organization: Organization, owner_id: str) -> Owner:
    """Return the owner of a limit, its row locked until the transaction ends. Raises
    ObjectNotFound."""
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


def _limited_owners(organization: Organization, further: Collection[str]) -> list[Owner]:
    """Return the owners that have a limit: by the month in their own row, or with an id in
    `further`."""
    is_limited = Q(spend_limit_nanos__isnull=False) | Q(id__in=further)
    return [
        organization,
        *tenants.projects(organization).filter(is_limited),
        *_keys(organization).filter(is_limited),
    ]


def _owners_by_id(organization: Organization, limited: str) -> list[Owner]:
    """Return the owner with this id, if there is one."""
    if limited == organization.id:
        return [organization]
    projects, its_keys = tenants.projects(organization), _keys(organization)
    return [*projects.filter(id=limited), *its_keys.filter(id=limited)]


def _owner_limits(owner: Owner, further: Iterable[SpendingLimit]) -> list[SpendingLimitRow]:
    """Return the limits of an owner, the monthly one first; `further` are those outside its own
    row."""
    kind = kind_of(limit_budget_id(owner.id))
    if kind is None:
        return []
    found: list[SpendingLimitRow] = []
    if owner.spend_limit_nanos is not None:
        month, nanos = limit_budget_id(owner.id), owner.spend_limit_nanos
        found.append(
            SpendingLimitRow(month, kind, owner.id, owner.name, "month", nanos, is_hard=True)
        )
    by_period = {row.period: row for row in further}
    for period in LIMIT_PERIODS:
        if row := by_period.get(period):
            found.append(
                SpendingLimitRow(
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


def short_period_limit_ids(limited: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids of the hard weekly and daily limits of organizations, projects or keys, by
    owner."""
    found: dict[str, tuple[str, ...]] = {}
    rows = SpendingLimit.objects.filter(limited_id__in=limited, is_hard=True).order_by("budget_id")
    for owner, budget_id in rows.values_list("limited_id", "budget_id"):
        found[owner] = (*found.get(owner, ()), budget_id)
    return found


def short_period_hard_limits(limited: Collection[str]) -> QuerySet[SpendingLimit]:
    """Return the hard weekly and daily limits of organizations, projects or keys."""
    return SpendingLimit.objects.filter(limited_id__in=limited, is_hard=True)


def soft_limit_ids(budget_ids: Collection[str]) -> set[str]:
    """Return the ids of those budgets whose limit only notifies."""
    soft = SpendingLimit.objects.filter(budget_id__in=budget_ids, is_hard=False)
    return set(soft.values_list("budget_id", flat=True))


def owner_names(ids: Iterable[str]) -> dict[str, str]:
    """Return the names of organizations, projects and keys, by id."""
    wanted = list(ids)
    found: dict[str, str] = {}
    for kind in (Organization, Project, ApiKey):
        found |= dict(kind.objects.filter(id__in=wanted).values_list("id", "name"))
    return found


class SpendingLimitInput(NamedTuple):
    """The wanted values of a limit."""

    period: str
    limit_nanos: int
    is_hard: bool


@transaction.atomic
def add_limit(
    *,
    actor: Actor,
    organization: Organization,
    owner_id: str,
    period: str,
    limit_nanos: int,
    is_hard: bool,
    now: datetime,
) -> SpendingLimitRow:
    """Limit the spending of an organization, project or key in a period, in nano-dollars.

    Raises ObjectNotFound for another organization's ids, Conflict if the period already has a
    limit.
    """
    require(actor, organization.id, Permission.LIMITS_WRITE)
    owner = _require_live(locked_owner(organization, owner_id))
    if period not in LimitPeriod.values:
        raise InvalidValue(
            f"period must be one of {', '.join(LimitPeriod.values)}.", param="period"
        )
    if _has_limit(owner, period):
        raise Conflict(f"There is already a limit per {period}.", param="period")
    wanted = SpendingLimitInput(period, _checked_amount(limit_nanos), is_hard)
    return _put(actor, organization, owner, wanted, now)


@transaction.atomic
def change_limit(
    *,
    actor: Actor,
    organization: Organization,
    budget_id: str,
    limit_nanos: int | None = None,
    is_hard: bool | None = None,
    now: datetime,
) -> SpendingLimitRow:
    """Raise or lower a limit, or make it hard or soft; None leaves a value as it is. Raises
    ObjectNotFound."""
    require(actor, organization.id, Permission.LIMITS_WRITE)
    owner = _require_live(locked_owner(organization, limited_id(budget_id)))
    before = _current(organization, budget_id)
    nanos = before.limit_nanos if limit_nanos is None else _checked_amount(limit_nanos)
    hard = before.is_hard if is_hard is None else is_hard
    return _put(actor, organization, owner, SpendingLimitInput(before.period, nanos, hard), now)


@transaction.atomic
def remove_limit(
    *, actor: Actor, organization: Organization, budget_id: str, now: datetime
) -> None:
    """Lift a limit. Raises ObjectNotFound."""
    require(actor, organization.id, Permission.LIMITS_WRITE)
    owner = locked_owner(organization, limited_id(budget_id))
    before = _current(organization, budget_id)
    if before.period == "month" and before.is_hard:
        _set_month(actor, owner, None)
        return
    SpendingLimit.objects.filter(budget_id=budget_id).delete()
    _record(actor, owner, "removed", budget_id, before=_terms(before))
    _apply(owner, budget_id, None, now)


def _put(
    actor: Actor,
    organization: Organization,
    owner: Owner,
    wanted: SpendingLimitInput,
    now: datetime,
) -> SpendingLimitRow:
    """Store a limit in its one place and remove it from the other."""
    period, nanos, is_hard = wanted
    budget_id = limit_budget_id(owner.id, cast(Period, period))
    if period == LimitPeriod.MONTH and is_hard:
        SpendingLimit.objects.filter(budget_id=budget_id).delete()
        _set_month(actor, owner, nanos)
        return _current(organization, budget_id)
    if period == LimitPeriod.MONTH and owner.spend_limit_nanos is not None:
        _set_month(actor, owner, None)
    values = {"limit_nanos": nanos, "is_hard": is_hard}
    fixed = {"organization": organization, "limited_id": owner.id, "period": period}
    known = SpendingLimit.objects.filter(budget_id=budget_id).first()
    before = _terms(known) if known else None
    SpendingLimit.objects.update_or_create(
        budget_id=budget_id, defaults=values, create_defaults=fixed | values
    )
    _record(actor, owner, "set", budget_id, before=before, after=values)
    _apply(owner, budget_id, nanos if is_hard else None, now)
    return _current(organization, budget_id)


def _current(organization: Organization, budget_id: str) -> SpendingLimitRow:
    """Return a limit from the current rows: the caller's may predate the lock."""
    organization.refresh_from_db(fields=["spend_limit_nanos"])
    return spending_limit(organization, budget_id)


def _set_month(actor: Actor, owner: Owner, nanos: int | None) -> None:
    if isinstance(owner, Organization):
        set_organization_limit(actor=actor, organization=owner, spend_limit_nanos=nanos)
    elif isinstance(owner, Project):
        set_project_limit(actor=actor, project=owner, spend_limit_nanos=nanos)
    else:
        set_key_limit(actor=actor, key=owner, spend_limit_nanos=nanos)


def _apply(owner: Owner, budget_id: str, limit_nanos: int | None, now: datetime) -> None:
    """Notify billing of the limit and publish it to gateways; the feed's lock comes last."""
    limits_changed.send(SpendingLimit, limits={budget_id: limit_nanos}, now=now)
    publish([FeedRef(_kind(owner), owner.id)])


def _kind(owner: Owner) -> str:
    """Return the kind of an owner in the change feed."""
    if isinstance(owner, Organization):
        return "organization"
    return "project" if isinstance(owner, Project) else "api_key"


def _has_limit(owner: Owner, period: str) -> bool:
    if period == LimitPeriod.MONTH and owner.spend_limit_nanos is not None:
        return True
    return SpendingLimit.objects.filter(limited_id=owner.id, period=period).exists()


def _require_live(owner: Owner) -> Owner:
    if isinstance(owner, Project) and owner.is_archived:
        raise Conflict("The project is archived.")
    if isinstance(owner, ApiKey):
        require_unrevoked(owner)
    return owner


def _checked_amount(limit_nanos: int) -> int:
    if not 0 <= limit_nanos <= NANOS_MAX:
        raise InvalidValue(
            f"limit_nanos is {limit_nanos}; wanted 0 to {NANOS_MAX}.", param="limit_nanos"
        )
    return limit_nanos


def _terms(limit: SpendingLimitRow | SpendingLimit) -> dict[str, Any]:
    return {"limit_nanos": limit.limit_nanos, "is_hard": limit.is_hard}


def _record(actor: Actor, owner: Owner, verb: str, budget_id: str, **details: Any) -> None:
    period = LimitPeriod(period_of(budget_id))
    audit.record(
        actor=actor,
        action=f"spending_limit.{verb}",
        target_kind="budget",
        target_id=budget_id,
        target_name=f"{owner}, {period.label}",
        organization_id=owner.id if isinstance(owner, Organization) else owner.organization_id,
        details=details,
    )
