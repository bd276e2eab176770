"""Rate limits as the data plane needs them."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from control.feed.services import FeedRecord
from control.limits.models import LimitTier, OrganizationLimits, OwnLimits, Standing
from serving.contract.records import Limits, LimitTierRecord, ModelLimits


@dataclass(slots=True)
class OfOrganization:
    """What an organization's record says of rates: its tier, and what is its own instead."""

    limit_tier_id: str | None = None
    own_limits: Limits | None = None
    own_model_limits: list[ModelLimits] = field(default_factory=list)


def tier_news(tier: LimitTier) -> FeedRecord:
    """Return what to publish of a tier."""
    rows = tier.model_limits.order_by("model_id")
    by_model = tuple(ModelLimits(row.model_id, row.limits) for row in rows)
    service_tiers = None if tier.service_tiers is None else tuple(tier.usable_service_tiers)
    record = LimitTierRecord(tier.id, tier.limits, by_model, service_tiers)
    return FeedRecord("limit_tier", tier.id, record)


def of_organizations(ids: Collection[str]) -> dict[str, OfOrganization]:
    """Return what the records of organizations say of rates."""
    found: dict[str, OfOrganization] = defaultdict(OfOrganization)
    standings = Standing.objects.filter(organization_id__in=ids)
    for organization_id, tier_id in standings.values_list("organization_id", "tier_id"):
        found[organization_id].limit_tier_id = tier_id
    for row in OrganizationLimits.objects.filter(organization_id__in=ids).order_by("model_id"):
        if row.model_id is None:
            found[row.organization_id].own_limits = row.limits
        else:
            limits = ModelLimits(row.model_id, row.limits)
            found[row.organization_id].own_model_limits.append(limits)
    return found


def own_limits(ids: Collection[str]) -> dict[str, Limits]:
    """Return the limits that members set for projects or keys."""
    return {row.limited_id: row.limits for row in OwnLimits.objects.filter(limited_id__in=ids)}
