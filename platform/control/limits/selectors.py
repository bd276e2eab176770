"""Questions about rate limits: what holds for whom, and who stands where."""

from dataclasses import dataclass

from django.db import connection
from django.db.models import QuerySet

from control.errors import ObjectNotFound
from control.keys import selectors as keys
from control.keys.models import ApiKey
from control.limits.models import LimitTier, OrganizationLimits, OwnLimits, Standing
from control.tenants import selectors as tenants
from control.tenants.models import Organization, Project
from serving.contract.records import Limits

Owner = Project | ApiKey
"""Who may have limits of members' own making."""

# Organizations whose tier is not the highest that what they paid reaches, or that have no standing.
MISPLACED = """
SELECT organization.id FROM tenants_organization AS organization
LEFT JOIN limits_standing AS standing ON standing.organization_id = organization.id
LEFT JOIN LATERAL (
    SELECT tier.id FROM limits_tier AS tier
    WHERE tier.paid_min_nanos <= coalesce(standing.paid_nanos, 0)
    ORDER BY tier.paid_min_nanos DESC LIMIT 1
) AS due ON true
WHERE standing.tier_id IS DISTINCT FROM due.id
ORDER BY organization.id LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class InForce:
    """Limits that hold for an organization; `is_own` where an operator set them."""

    limits: Limits
    is_own: bool = False
    model_id: str | None = None
    model_name: str = ""


@dataclass(frozen=True, slots=True)
class TierStanding:
    """The tier of an organization, what it has paid in all (None where that is not told), and the
    tier that comes next."""

    tier: LimitTier | None
    paid_nanos: int | None
    next_tier: LimitTier | None


def tiers() -> QuerySet[LimitTier]:
    """Return all tiers, the lowest first."""
    return LimitTier.objects.order_by("paid_min_nanos")


def tier_due(paid_nanos: int) -> LimitTier | None:
    """Return the highest tier that so much reaches; None below the lowest."""
    return tiers().filter(paid_min_nanos__lte=paid_nanos).last()


def next_tier(paid_nanos: int) -> LimitTier | None:
    """Return the lowest tier that so much does not reach yet."""
    return tiers().filter(paid_min_nanos__gt=paid_nanos).first()


def locked_tier(tier_id: str) -> LimitTier:
    """Return a tier with its row locked. Raises ObjectNotFound."""
    found = LimitTier.objects.select_for_update(no_key=True).filter(id=tier_id).first()
    if found is None:
        raise ObjectNotFound("There is no such limit tier.")
    return found


def standing(organization: Organization) -> Standing:
    """Return where an organization stands; without a word of billing it has paid nothing."""
    found = Standing.objects.select_related("tier").filter(organization=organization).first()
    return found or Standing(organization=organization)


def tier_standing(organization: Organization, *, with_money: bool) -> TierStanding:
    """Return the tier of an organization, and what it has paid for who may see money."""
    found = standing(organization)
    paid_nanos = found.paid_nanos if with_money else None
    return TierStanding(found.tier, paid_nanos, next_tier(found.paid_nanos))


def misplaced(limit: int) -> list[str]:
    """Return organizations that should stand in another tier, so many at most."""
    with connection.cursor() as cursor:
        cursor.execute(MISPLACED, [limit])
        return [row[0] for row in cursor.fetchall()]


def in_force(organization: Organization) -> list[InForce]:
    """Return the limits of an organization: on all models together, then model by model."""
    tier, mine = standing(organization).tier, Limits()
    found: dict[str, InForce] = {}
    if tier is not None:
        mine = tier.limits
        for listed in tier.model_limits.select_related("model"):
            name = listed.model.public_id
            found[name] = InForce(listed.limits, False, listed.model_id, name)
    overall = InForce(mine)
    for own in OrganizationLimits.objects.filter(organization=organization).select_related("model"):
        if own.model is None:
            overall = InForce(own.limits, is_own=True)
        else:
            name = own.model.public_id
            found[name] = InForce(own.limits, True, own.model_id, name)
    return [overall, *(found[name] for name in sorted(found))]


def locked_owner(organization: Organization, owner_id: str) -> Owner:
    """Return a project or a key of an organization, its row locked. Raises ObjectNotFound."""
    if owner_id.startswith("proj_"):
        return tenants.locked_project(organization, owner_id)
    return keys.locked_key(organization, owner_id)


def own_limits(organization: Organization, owner_id: str) -> Limits:
    """Return what members set for a project or a key, no limits where they set none."""
    if not owner_id:
        return Limits()
    found = OwnLimits.objects.filter(organization=organization, limited_id=owner_id).first()
    return Limits() if found is None else found.limits


def all_own_limits(organization: Organization) -> dict[str, Limits]:
    """Return what members set, by the id of the project or the key."""
    rows = OwnLimits.objects.filter(organization=organization)
    return {row.limited_id: row.limits for row in rows}
