"""What may be done to rate limits: verbs, one transaction each. Gateways hear of it in a second."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from control.actor import Actor
from control.audit import services as audit
from control.catalog.models import Model
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRef, publish
from control.keys.models import ApiKey
from control.limits import selectors
from control.limits.models import (
    FIGURES,
    LIMIT_MAX,
    LimitTier,
    OrganizationLimits,
    OwnLimits,
    TierModelLimits,
)
from control.limits.records import tier_news
from control.operators import Duty, require_operator
from control.tenants import checks
from control.tenants.models import Organization, Project
from control.tenants.permissions import Action, require
from control.tenants.selectors import locked_organization
from serving.contract.records import Limits
from serving.contract.units import TIERS


@transaction.atomic
def create_tier(
    *,
    actor: Actor,
    name: str,
    paid_min_nanos: int,
    figures: Mapping[str, int | None],
    service_tiers: Sequence[str] | None = None,
) -> LimitTier:
    """Add a tier for who has paid so much; organizations move to it within minutes.

    Raises Conflict where another tier has the name or the amount.
    """
    require_operator(actor, Duty.HELP_CUSTOMERS)
    tier = LimitTier(name=checks.name(name), paid_min_nanos=_paid(paid_min_nanos))
    tier.service_tiers = _service_tiers(service_tiers)
    _check_free(tier)
    _set(tier, figures)
    tier.save(force_insert=True)
    _record(actor, "limit_tier.create", "limit_tier", tier.id, after=_said(tier))
    publish([tier_news(tier)])
    return tier


@transaction.atomic
def change_tier(*, actor: Actor, tier: LimitTier, changes: Mapping[str, Any]) -> LimitTier:
    """Change a tier's name, what it takes to reach it, its limits or the service tiers that it
    includes, for all who stand in it."""
    require_operator(actor, Duty.HELP_CUSTOMERS)
    tier = selectors.locked_tier(tier.id)
    before = _said(tier)
    tier.name = checks.name(changes.get("name", tier.name))
    tier.paid_min_nanos = _paid(changes.get("paid_min_nanos", tier.paid_min_nanos))
    tier.service_tiers = _service_tiers(changes.get("service_tiers", tier.service_tiers))
    _check_free(tier)
    _set(tier, {name: changes[name] for name in FIGURES if name in changes})
    tier.save()
    _record(actor, "limit_tier.change", "limit_tier", tier.id, before=before, after=_said(tier))
    publish([tier_news(tier)])
    return tier


@transaction.atomic
def set_tier_model_limits(
    *, actor: Actor, tier: LimitTier, model: Model, figures: Mapping[str, int | None] | None
) -> None:
    """Limit one model for a whole tier; None lifts it."""
    require_operator(actor, Duty.HELP_CUSTOMERS)
    tier = selectors.locked_tier(tier.id)
    rows = TierModelLimits.objects.filter(tier=tier, model=model)
    row = rows.first() or TierModelLimits(tier=tier, model=model)
    before = None if row.pk is None else _figures(row)
    _put_or_remove(row, figures)
    after = None if figures is None else _figures(row)
    _record(
        actor, "limit_tier.set_model", "limit_tier", tier.id,
        model=model.public_id, before=before, after=after,
    )  # fmt: skip
    publish([tier_news(tier)])


@transaction.atomic
def set_organization_limits(
    *,
    actor: Actor,
    organization: Organization,
    model: Model | None,
    figures: Mapping[str, int | None] | None,
) -> OrganizationLimits | None:
    """Give an organization limits of its own, on all models or on one, in place of its tier's row;
    None gives it its tier's back."""
    require_operator(actor, Duty.HELP_CUSTOMERS)
    organization = locked_organization(organization.id)
    rows = OrganizationLimits.objects.filter(organization=organization, model=model)
    row = rows.first() or OrganizationLimits(organization=organization, model=model)
    before = None if row.pk is None else _figures(row)
    _put_or_remove(row, figures)
    after = None if figures is None else _figures(row)
    _record(
        actor, "organization.set_rates", "organization", organization.id, organization.id,
        model=model and model.public_id, before=before, after=after,
    )  # fmt: skip
    publish([FeedRef("organization", organization.id)])
    return None if figures is None else row


@transaction.atomic
def set_own_limits(
    *, actor: Actor, organization: Organization, owner_id: str, figures: Mapping[str, int | None]
) -> Limits:
    """Limit a project or a key of an organization, within what it may do itself; what is not named
    stays as it is, None lifts it. Raises ObjectNotFound for another organization's."""
    require(actor, organization, Action.SET_LIMITS)
    owner = selectors.locked_owner(organization, owner_id)
    _check_live(owner)
    found = OwnLimits.objects.filter(limited_id=owner.id).first()
    row = found or OwnLimits(limited_id=owner.id, organization=organization)
    before = _figures(row)
    _set(row, figures)
    row.save()
    kind = "project" if isinstance(owner, Project) else "api_key"
    _record(
        actor, f"{kind.removeprefix('api_')}.set_rates", kind, owner.id, organization.id,
        before=before, after=_figures(row),
    )  # fmt: skip
    publish([FeedRef(kind, owner.id)])
    return row.limits


def _check_live(owner: Project | ApiKey) -> None:
    if isinstance(owner, Project) and owner.is_archived:
        raise Conflict("The project is archived.")
    if isinstance(owner, ApiKey) and owner.revoked_at is not None:
        raise Conflict("The API key is revoked.")


def _check_free(tier: LimitTier) -> None:
    others = LimitTier.objects.exclude(pk=tier.pk)
    if others.filter(name=tier.name).exists():
        raise Conflict(f"There is a tier named {tier.name} already.", param="name")
    if others.filter(paid_min_nanos=tier.paid_min_nanos).exists():
        raise Conflict("There is a tier from this amount already.", param="paid_min_nanos")


def _paid(nanos: int) -> int:
    if not 0 <= nanos <= checks.NANOS_MAX:
        raise InvalidValue(f"paid_min_nanos is {nanos}; wanted at least 0.", param="paid_min_nanos")
    return nanos


def _service_tiers(names: Sequence[str] | None) -> list[str] | None:
    """Return the service tiers of a list, the most urgent first; None for all."""
    for name in names or ():
        if name not in TIERS:
            wanted = f"wanted some of {', '.join(TIERS)}, or none for all"
            raise InvalidValue(f"service_tiers is {name!r}; {wanted}.", param="service_tiers")
    return [tier for tier in TIERS if tier in names] if names else None


Row = LimitTier | TierModelLimits | OrganizationLimits | OwnLimits


def _set(row: Row, figures: Mapping[str, int | None]) -> None:
    for name, value in figures.items():
        if value is not None and not 1 <= value <= LIMIT_MAX:
            raise InvalidValue(f"{name} is {value}; wanted 1 to {LIMIT_MAX}, or none.", param=name)
        setattr(row, name, value)


def _put_or_remove(row: TierModelLimits | OrganizationLimits, figures: Any) -> None:
    if figures is not None:
        _set(row, figures)
        row.save()
    elif row.pk is not None:
        row.delete()


def _figures(row: Row) -> dict[str, int | None]:
    return {name: getattr(row, name) for name in FIGURES}


def _said(tier: LimitTier) -> dict[str, Any]:
    said = {"name": tier.name, "paid_min_nanos": tier.paid_min_nanos}
    return said | {"service_tiers": tier.service_tiers} | _figures(tier)


def _record(
    actor: Actor,
    action: str,
    target_kind: str,
    target_id: str,
    organization_id: str = "",
    **details: Any,
) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind=target_kind,
        target_id=target_id,
        organization_id=organization_id,
        details=details,
    )
