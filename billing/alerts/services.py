"""What organizations may choose to be told of: verbs, one transaction each."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from billing.alerts.defaults import PERCENTS
from billing.alerts.models import AlertSettings, Thresholds
from control.audit import services as audit
from control.db.row_changes import snapshot
from control.errors import InvalidValue
from control.limits.models import LimitPeriod
from control.limits.spending import spending_limit
from control.organizations.models import Organization
from control.organizations.validators import NANOS_MAX
from control.permissions import Actor, Permission, require
from serving.contract.budget import balance_budget_id, kind_of

PERCENT_MAX = 1000
PERCENTS_MAX = 10


@transaction.atomic
def choose_percents(
    *, actor: Actor, organization: Organization, budget_id: str, percents: Sequence[int]
) -> list[int]:
    """Tell at these percentages of a limit, or of the credit limit by its balance; none at all is
    possible.

    Raises ObjectNotFound for another organization's, InvalidValue for percentages beyond 1 to
    1,000, or more than ten.
    """
    require(actor, organization.id, Permission.LIMITS_WRITE)
    if budget_id != balance_budget_id(organization.id):
        spending_limit(organization, budget_id)
    chosen = sorted(set(percents))
    if len(chosen) > PERCENTS_MAX or any(not 1 <= one <= PERCENT_MAX for one in chosen):
        words = f"alert_percents must be at most {PERCENTS_MAX} numbers from 1 to {PERCENT_MAX}."
        raise InvalidValue(words, param="alert_percents")
    known = Thresholds.objects.filter(budget_id=budget_id).first()
    before = known.percents if known else list(PERCENTS)
    if tuple(chosen) == PERCENTS:
        forget_percents(organization=organization, budget_id=budget_id)
    else:
        values = {"organization_id": organization.id, "percents": chosen}
        Thresholds.objects.update_or_create(budget_id=budget_id, defaults=values)
    _record(
        actor, organization, "alert.choose_percents", budget_id,
        before={"alert_percents": before}, after={"alert_percents": chosen},
    )  # fmt: skip
    return chosen


@transaction.atomic
def forget_percents(*, organization: Organization, budget_id: str) -> None:
    """Drop what was chosen for a budget that is removed."""
    Thresholds.objects.filter(organization_id=organization.id, budget_id=budget_id).delete()


@transaction.atomic
def choose_alerts(
    *,
    actor: Actor,
    organization: Organization,
    low_balance_nanos: int | None,
    low_runway_days: int | None,
    unusual_factor: int | None,
) -> AlertSettings:
    """Tell below a balance, below so many days' runway, and from so many times the usual spending
    on; None turns one off. Raises InvalidValue."""
    require(actor, organization.id, Permission.LIMITS_WRITE)
    _between("low_balance_nanos", low_balance_nanos, 1, NANOS_MAX)
    _between("low_runway_days", low_runway_days, 1, 365)
    _between("unusual_factor", unusual_factor, 2, 100)
    values = {
        "low_balance_nanos": low_balance_nanos,
        "low_runway_days": low_runway_days,
        "unusual_factor": unusual_factor,
    }
    known = AlertSettings.objects.filter(organization_id=organization.id).first()
    before = snapshot(known, values) if known else None
    chosen, _ = AlertSettings.objects.update_or_create(
        organization_id=organization.id, defaults=values
    )
    _record(actor, organization, "alert.choose", organization.id, before=before, after=values)
    return chosen


def _between(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidValue(f"{name} is {value}; wanted {least} to {most}, or null.", param=name)


def _name_of(organization: Organization, target_id: str) -> str:
    """Return what people call the limit or the organization that alerts are about."""
    if kind_of(target_id) in (None, "balance"):
        return organization.name
    limit = spending_limit(organization, target_id)
    return f"{limit.name}, {LimitPeriod(limit.period).label}"


def _record(
    actor: Actor, organization: Organization, action: str, target_id: str, **details: Any
) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="alert",
        target_id=target_id,
        target_name=_name_of(organization, target_id),
        organization_id=organization.id,
        details=details,
    )
