"""Sets and lists rate limits, and builds the records that gateways read."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from control.api_keys import selectors as keys
from control.api_keys.models import ApiKey
from control.api_keys.services import require_unrevoked
from control.audit import services as audit
from control.catalog.models import Model
from control.db.models import get_or_not_found
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRecord, FeedRef, publish
from control.limits.models import (
    LIMIT_MAX,
    RATE_LIMIT_FIELDS,
    OrganizationUsageTier,
    RateLimitOverride,
    SelfImposedRateLimit,
    UsageTier,
    UsageTierModelLimit,
)
from control.organizations import selectors as tenants
from control.organizations import validators
from control.organizations.models import Organization, Project
from control.organizations.selectors import locked_organization
from control.permissions import Actor, Permission, require, require_operator
from control.versions import lock_edits
from serving.contract.records import ModelRateLimits, RateLimitSettings, UsageTierRecord
from serving.contract.units import TIERS

RateLimitOwner = Project | ApiKey
"""A project or an API key, for which members may set rate limits."""

# Organizations that are not in the highest tier that their payments reach, or have no tier row.
WRONG_TIER = """
SELECT organization.id FROM organizations_organization AS organization
LEFT JOIN limits_organization_usage_tier AS standing ON standing.organization_id = organization.id
LEFT JOIN LATERAL (
    SELECT tier.id FROM limits_usage_tier AS tier
    WHERE tier.paid_min_nanos <= coalesce(standing.paid_nanos, 0)
    ORDER BY tier.paid_min_nanos DESC LIMIT 1
) AS due ON true
WHERE standing.tier_id IS DISTINCT FROM due.id
ORDER BY organization.id LIMIT %s
"""
Row = UsageTier | UsageTierModelLimit | RateLimitOverride | SelfImposedRateLimit


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """Limits in force for an organization; `is_own` where an operator set them."""

    limits: RateLimitSettings
    is_own: bool = False
    model_id: str | None = None
    model_name: str = ""


@dataclass(frozen=True, slots=True)
class UsageTierStatus:
    """The tier of an organization, its total payments (None where they are not shown), and the next
    tier."""

    tier: UsageTier | None
    paid_nanos: int | None
    next_tier: UsageTier | None


def usage_tiers() -> QuerySet[UsageTier]:
    """Return all tiers, the lowest first."""
    return UsageTier.objects.order_by("paid_min_nanos")


def eligible_tier(paid_nanos: int) -> UsageTier | None:
    """Return the highest tier that the amount reaches; None below the lowest."""
    return usage_tiers().filter(paid_min_nanos__lte=paid_nanos).last()


def next_tier(paid_nanos: int) -> UsageTier | None:
    """Return the lowest tier that the amount does not reach."""
    return usage_tiers().filter(paid_min_nanos__gt=paid_nanos).first()


def usage_tier(tier_id: str) -> UsageTier:
    """Return a tier. Raises ObjectNotFound."""
    return get_or_not_found(usage_tiers(), "usage tier", id=tier_id)


def locked_tier(tier_id: str) -> UsageTier:
    """Return a tier with its row locked. Raises ObjectNotFound."""
    return get_or_not_found(
        UsageTier.objects.select_for_update(no_key=True), "usage tier", id=tier_id
    )


def organization_usage_tier(organization: Organization) -> OrganizationUsageTier:
    """Return an organization's tier row; without a payment reported by billing it has paid
    nothing."""
    found = (
        OrganizationUsageTier.objects.select_related("tier")
        .filter(organization=organization)
        .first()
    )
    return found or OrganizationUsageTier(organization=organization)


def usage_tier_status(organization: Organization, *, with_money: bool) -> UsageTierStatus:
    """Return an organization's tier, with its payments if `with_money`."""
    found = organization_usage_tier(organization)
    paid_nanos = found.paid_nanos if with_money else None
    return UsageTierStatus(found.tier, paid_nanos, next_tier(found.paid_nanos))


def organizations_in_wrong_tier(limit: int) -> list[str]:
    """Return the ids of up to `limit` organizations that belong in another tier."""
    with connection.cursor() as cursor:
        cursor.execute(WRONG_TIER, [limit])
        return [row[0] for row in cursor.fetchall()]


def effective_limits(organization: Organization) -> list[EffectiveLimits]:
    """Return the limits of an organization: on all models together, then model by model."""
    tier, mine = organization_usage_tier(organization).tier, RateLimitSettings()
    found: dict[str, EffectiveLimits] = {}
    if tier is not None:
        mine = tier.limits
        for listed in tier.model_limits.select_related("model"):
            name = listed.model.public_id
            found[name] = EffectiveLimits(listed.limits, False, listed.model_id, name)
    overall = EffectiveLimits(mine)
    for own in RateLimitOverride.objects.filter(organization=organization).select_related("model"):
        if own.model is None:
            overall = EffectiveLimits(own.limits, is_own=True)
        else:
            name = own.model.public_id
            found[name] = EffectiveLimits(own.limits, True, own.model_id, name)
    return [overall, *(found[name] for name in sorted(found))]


def locked_owner(organization: Organization, owner_id: str) -> RateLimitOwner:
    """Return a project or a key of an organization, its row locked. Raises ObjectNotFound."""
    if owner_id.startswith("proj_"):
        return tenants.locked_project(organization, owner_id)
    return keys.locked_key(organization, owner_id)


def own_limits(organization: Organization, owner_id: str) -> RateLimitSettings:
    """Return the limits that members set for a project or a key; no limits where they set none."""
    if not owner_id:
        return RateLimitSettings()
    found = SelfImposedRateLimit.objects.filter(
        organization=organization, limited_id=owner_id
    ).first()
    return RateLimitSettings() if found is None else found.limits


def all_own_limits(organization: Organization) -> dict[str, RateLimitSettings]:
    """Return what members set, by the id of the project or the key."""
    rows = SelfImposedRateLimit.objects.filter(organization=organization)
    return {row.limited_id: row.limits for row in rows}


@transaction.atomic
def create_usage_tier(
    *,
    actor: Actor,
    name: str,
    paid_min_nanos: int,
    figures: Mapping[str, int | None],
    service_tiers: Sequence[str] | None = None,
) -> UsageTier:
    """Add a tier from a total amount paid; organizations move to it within minutes.

    Raises Conflict if another tier has the name or the amount.
    """
    require_operator(actor, Permission.CUSTOMERS_WRITE)
    tier = UsageTier(name=validators.name(name), paid_min_nanos=_paid(paid_min_nanos))
    tier.service_tiers = _service_tiers(service_tiers)
    _check_free(tier)
    _set(tier, figures)
    tier.save(force_insert=True)
    audit.record_about(actor, "usage_tier.created", tier, "limit_tier", after=_snapshot(tier))
    publish([usage_tier_record(tier)])
    return tier


@transaction.atomic
def change_usage_tier(*, actor: Actor, tier: UsageTier, changes: Mapping[str, Any]) -> UsageTier:
    """Change a tier's name, its amount, its limits or its service tiers, for all organizations in
    it."""
    require_operator(actor, Permission.CUSTOMERS_WRITE)
    tier = locked_tier(tier.id)
    before = _snapshot(tier)
    tier.name = validators.name(changes.get("name", tier.name))
    tier.paid_min_nanos = _paid(changes.get("paid_min_nanos", tier.paid_min_nanos))
    tier.service_tiers = _service_tiers(changes.get("service_tiers", tier.service_tiers))
    _check_free(tier)
    _set(tier, {name: changes[name] for name in RATE_LIMIT_FIELDS if name in changes})
    tier.save()
    audit.record_about(
        actor, "usage_tier.updated", tier, "limit_tier",
        before=before, after=_snapshot(tier),
    )  # fmt: skip
    publish([usage_tier_record(tier)])
    return tier


@transaction.atomic
def set_usage_tier_model_limit(
    *, actor: Actor, tier: UsageTier, model: Model, figures: Mapping[str, int | None] | None
) -> None:
    """Limit one model for a whole tier; None lifts the limit."""
    require_operator(actor, Permission.CUSTOMERS_WRITE)
    lock_edits(tier.id)
    tier = locked_tier(tier.id)
    rows = UsageTierModelLimit.objects.filter(tier=tier, model=model)
    row = rows.first() or UsageTierModelLimit(tier=tier, model=model)
    before = None if row.pk is None else _figures(row)
    _put_or_remove(row, figures)
    after = None if figures is None else _figures(row)
    audit.record_about(
        actor, "usage_tier.model_limit_set", tier, "limit_tier",
        model=model.public_id, before=before, after=after,
    )  # fmt: skip
    publish([usage_tier_record(tier)])


@transaction.atomic
def set_rate_limit_override(
    *,
    actor: Actor,
    organization: Organization,
    model: Model | None,
    figures: Mapping[str, int | None] | None,
) -> RateLimitOverride | None:
    """Give an organization its own limits, on all models or on one, in place of its tier's row;
    None restores the tier's."""
    require_operator(actor, Permission.CUSTOMERS_WRITE)
    lock_edits(organization.id)
    organization = locked_organization(organization.id)
    rows = RateLimitOverride.objects.filter(organization=organization, model=model)
    row = rows.first() or RateLimitOverride(organization=organization, model=model)
    before = None if row.pk is None else _figures(row)
    _put_or_remove(row, figures)
    after = None if figures is None else _figures(row)
    audit.record_about(
        actor, "organization.rate_limits_updated", organization,
        model=model and model.public_id, before=before, after=after,
    )  # fmt: skip
    publish([FeedRef("organization", organization.id)])
    return None if figures is None else row


@transaction.atomic
def set_own_limits(
    *, actor: Actor, organization: Organization, owner_id: str, figures: Mapping[str, int | None]
) -> RateLimitSettings:
    """Limit a project or a key, within its organization's limits; omitted limits stay, None lifts
    one. Raises ObjectNotFound for another organization's rows."""
    require(actor, organization.id, Permission.LIMITS_WRITE)
    owner = locked_owner(organization, owner_id)
    _check_live(owner)
    found = SelfImposedRateLimit.objects.filter(limited_id=owner.id).first()
    row = found or SelfImposedRateLimit(limited_id=owner.id, organization=organization)
    before = _figures(row)
    _set(row, figures)
    row.save()
    kind = "project" if isinstance(owner, Project) else "api_key"
    audit.record_about(
        actor, f"{kind}.rate_limits_set", owner,
        before=before, after=_figures(row),
    )  # fmt: skip
    publish([FeedRef(kind, owner.id)])
    return row.limits


def _check_live(owner: Project | ApiKey) -> None:
    if isinstance(owner, Project) and owner.is_archived:
        raise Conflict("The project is archived.")
    if isinstance(owner, ApiKey):
        require_unrevoked(owner)


def _check_free(tier: UsageTier) -> None:
    others = UsageTier.objects.exclude(pk=tier.pk)
    if others.filter(name=tier.name).exists():
        raise Conflict(f"A tier named {tier.name} already exists.", param="name")
    if others.filter(paid_min_nanos=tier.paid_min_nanos).exists():
        raise Conflict("A tier for this amount already exists.", param="paid_min_nanos")


def _paid(nanos: int) -> int:
    if not 0 <= nanos <= validators.NANOS_MAX:
        raise InvalidValue(f"paid_min_nanos is {nanos}; wanted at least 0.", param="paid_min_nanos")
    return nanos


def _service_tiers(names: Sequence[str] | None) -> list[str] | None:
    """Return the named service tiers, the most urgent first; None means all."""
    for name in names or ():
        if name not in TIERS:
            wanted = f"wanted some of {', '.join(TIERS)}, or none for all"
            raise InvalidValue(f"service_tiers is {name!r}; {wanted}.", param="service_tiers")
    return [tier for tier in TIERS if tier in names] if names else None


def _set(row: Row, figures: Mapping[str, int | None]) -> None:
    for name, value in figures.items():
        if value is not None and not 1 <= value <= LIMIT_MAX:
            raise InvalidValue(f"{name} is {value}; wanted 1 to {LIMIT_MAX}, or none.", param=name)
        setattr(row, name, value)


def _put_or_remove(row: UsageTierModelLimit | RateLimitOverride, figures: Any) -> None:
    if figures is not None:
        _set(row, figures)
        row.save()
    elif row.pk is not None:
        row.delete()


def _figures(row: Row) -> dict[str, int | None]:
    return {name: getattr(row, name) for name in RATE_LIMIT_FIELDS}


def _snapshot(tier: UsageTier) -> dict[str, Any]:
    return {
        "name": tier.name,
        "paid_min_nanos": tier.paid_min_nanos,
        "service_tiers": tier.service_tiers,
    } | _figures(tier)


@dataclass(slots=True)
class OrganizationRateLimits:
    """The rate limits in an organization's record: its tier, and its own limits in place of the
    tier's; and whether it has paid."""

    has_paid: bool = False
    limit_tier_id: str | None = None
    own_limits: RateLimitSettings | None = None
    own_model_limits: list[ModelRateLimits] = field(default_factory=list)


def usage_tier_record(tier: UsageTier) -> FeedRecord:
    """Return the feed record of a tier."""
    rows = tier.model_limits.order_by("model_id")
    by_model = tuple(ModelRateLimits(row.model_id, row.limits) for row in rows)
    service_tiers = None if tier.service_tiers is None else tuple(tier.usable_service_tiers)
    record = UsageTierRecord(tier.id, tier.limits, by_model, service_tiers)
    return FeedRecord("limit_tier", tier.id, record)


def organization_rate_limits(ids: Collection[str]) -> dict[str, OrganizationRateLimits]:
    """Return the rate limits in organizations' records, by id."""
    found: dict[str, OrganizationRateLimits] = defaultdict(OrganizationRateLimits)
    for status in OrganizationUsageTier.objects.filter(organization_id__in=ids):
        found[status.organization_id].limit_tier_id = status.tier_id
        found[status.organization_id].has_paid = status.has_paid
    for row in RateLimitOverride.objects.filter(organization_id__in=ids).order_by("model_id"):
        if row.model_id is None:
            found[row.organization_id].own_limits = row.limits
        else:
            limits = ModelRateLimits(row.model_id, row.limits)
            found[row.organization_id].own_model_limits.append(limits)
    return found


def own_limits_of(ids: Collection[str]) -> dict[str, RateLimitSettings]:
    """Return the limits that members set for projects or keys, by id."""
    return {
        row.limited_id: row.limits
        for row in SelfImposedRateLimit.objects.filter(limited_id__in=ids)
    }
