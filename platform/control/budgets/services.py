"""What may be done to limits of spending: verbs, one transaction each.

Each takes effect at once: gateways hear of it within a second, and what they hold beyond a lowered
limit is called back.
"""

from datetime import datetime
from typing import Any, NamedTuple, cast

from django.db import transaction

from control.actor import Actor
from control.audit import services as audit
from control.budgets.models import LimitPeriod, SpendLimit
from control.budgets.selectors import Limit, Owner, limit, locked_owner
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRef, publish
from control.keys.models import ApiKey
from control.keys.services import set_key_limit
from control.tenants.checks import NANOS_MAX
from control.tenants.models import Organization, Project
from control.tenants.permissions import Action, require
from control.tenants.services import set_organization_limit, set_project_limit
from control.tenants.signals import limits_changed
from serving.contract.budget import LimitPeriod as Period
from serving.contract.budget import limit_budget_id, limited_id


class Wish(NamedTuple):
    """What is wanted of a limit."""

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
) -> Limit:
    """Limit what an organization, a project or a key spends in a period, in nano-dollars.

    Raises ObjectNotFound for another organization's ids, Conflict where the period has a limit
    already.
    """
    require(actor, organization, Action.SET_LIMITS)
    owner = _live(locked_owner(organization, owner_id))
    if period not in LimitPeriod.values:
        raise InvalidValue(
            f"period must be one of {', '.join(LimitPeriod.values)}.", param="period"
        )
    if _has_limit(owner, period):
        raise Conflict(f"There is a limit by the {period} already.", param="period")
    return _put(actor, organization, owner, Wish(period, _checked(limit_nanos), is_hard), now)


@transaction.atomic
def change_limit(
    *,
    actor: Actor,
    organization: Organization,
    budget_id: str,
    limit_nanos: int | None = None,
    is_hard: bool | None = None,
    now: datetime,
) -> Limit:
    """Raise or lower a limit, or make it hard or soft; None leaves it as it is. Raises
    ObjectNotFound."""
    require(actor, organization, Action.SET_LIMITS)
    owner = _live(locked_owner(organization, limited_id(budget_id)))
    before = _current(organization, budget_id)
    nanos = before.limit_nanos if limit_nanos is None else _checked(limit_nanos)
    hard = before.is_hard if is_hard is None else is_hard
    return _put(actor, organization, owner, Wish(before.period, nanos, hard), now)


@transaction.atomic
def remove_limit(
    *, actor: Actor, organization: Organization, budget_id: str, now: datetime
) -> None:
    """Lift a limit. Raises ObjectNotFound."""
    require(actor, organization, Action.SET_LIMITS)
    owner = locked_owner(organization, limited_id(budget_id))
    before = _current(organization, budget_id)
    if before.period == "month" and before.is_hard:
        _set_month(actor, owner, None)
        return
    SpendLimit.objects.filter(budget_id=budget_id).delete()
    _record(actor, organization, "remove", budget_id, before=before.limit_nanos)
    _tell(owner, budget_id, None, now)


def _put(
    actor: Actor, organization: Organization, owner: Owner, wish: Wish, now: datetime
) -> Limit:
    """Keep a limit where it belongs, and nowhere else."""
    period, nanos, is_hard = wish
    budget_id = limit_budget_id(owner.id, cast(Period, period))
    if period == LimitPeriod.MONTH and is_hard:
        SpendLimit.objects.filter(budget_id=budget_id).delete()
        _set_month(actor, owner, nanos)
        return _current(organization, budget_id)
    if period == LimitPeriod.MONTH and owner.spend_limit_nanos is not None:
        _set_month(actor, owner, None)
    values = {"limit_nanos": nanos, "is_hard": is_hard}
    fixed = {"organization": organization, "limited_id": owner.id, "period": period}
    SpendLimit.objects.update_or_create(
        budget_id=budget_id, defaults=values, create_defaults=fixed | values
    )
    _record(actor, organization, "set", budget_id, **values)
    _tell(owner, budget_id, nanos if is_hard else None, now)
    return _current(organization, budget_id)


def _current(organization: Organization, budget_id: str) -> Limit:
    """Return a limit as the rows have it now: the caller's may be from before the lock."""
    organization.refresh_from_db(fields=["spend_limit_nanos"])
    return limit(organization, budget_id)


def _set_month(actor: Actor, owner: Owner, nanos: int | None) -> None:
    if isinstance(owner, Organization):
        set_organization_limit(actor=actor, organization=owner, spend_limit_nanos=nanos)
    elif isinstance(owner, Project):
        set_project_limit(actor=actor, project=owner, spend_limit_nanos=nanos)
    else:
        set_key_limit(actor=actor, key=owner, spend_limit_nanos=nanos)


def _tell(owner: Owner, budget_id: str, limit_nanos: int | None, now: datetime) -> None:
    """Let billing count against the limit, and gateways hold on it; the feed's lock comes last."""
    limits_changed.send(SpendLimit, limits={budget_id: limit_nanos}, now=now)
    publish([FeedRef(_kind(owner), owner.id)])


def _kind(owner: Owner) -> str:
    """Return what the change feed calls an owner."""
    if isinstance(owner, Organization):
        return "organization"
    return "project" if isinstance(owner, Project) else "api_key"


def _has_limit(owner: Owner, period: str) -> bool:
    if period == LimitPeriod.MONTH and owner.spend_limit_nanos is not None:
        return True
    return SpendLimit.objects.filter(limited_id=owner.id, period=period).exists()


def _live(owner: Owner) -> Owner:
    if isinstance(owner, Project) and owner.is_archived:
        raise Conflict("The project is archived.")
    if isinstance(owner, ApiKey) and owner.revoked_at is not None:
        raise Conflict("The API key is revoked.")
    return owner


def _checked(limit_nanos: int) -> int:
    if not 0 <= limit_nanos <= NANOS_MAX:
        raise InvalidValue(
            f"limit_nanos is {limit_nanos}; wanted 0 to {NANOS_MAX}.", param="limit_nanos"
        )
    return limit_nanos


def _record(
    actor: Actor, organization: Organization, verb: str, budget_id: str, **details: Any
) -> None:
    audit.record(
        actor=actor,
        action=f"budget.{verb}",
        target_kind="budget",
        target_id=budget_id,
        organization_id=organization.id,
        details=details,
    )
