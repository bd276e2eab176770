"""The limits of one caller: of its key, its project, its organization and their models."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from serving.contract.limits import Measure, count_name
from serving.contract.records import (
    ApiKeyRecord,
    ModelRateLimits,
    OrganizationRecord,
    ProjectRecord,
    RateLimitSettings,
    UsageTierRecord,
)
from serving.contract.slot_shares import NEVER_PAID

PLANS_MAX = 65_536
"""Keys whose limits are remembered; past it all are made anew."""
Owner = Literal["key", "project", "organization"]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """One limit: of whom, of what, how much; `name` is what it is called in Redis."""

    name: str
    owner: Owner
    owner_id: str
    measure: Measure
    limit: int
    model_id: str | None = None


class RateLimitPlan:
    """The limits of one caller, made once. `tenant_id` is its organization, or all that never
    paid."""

    def __init__(
        self,
        tenant_id: str,
        base: tuple[RateLimit, ...],
        of_models: dict[str, tuple[RateLimit, ...]],
    ) -> None:
        self.tenant_id = tenant_id
        self.base = base
        self._of_models = {id_: (*base, *checks) for id_, checks in of_models.items()}
        self.early = tuple(check for check in base if check.measure == "requests")
        """What can be checked before it is known which model is wanted."""

    def checks(self, model_id: str) -> tuple[RateLimit, ...]:
        """Return what holds for requests to a model."""
        return self._of_models.get(model_id, self.base)


Sources = tuple[ApiKeyRecord, ProjectRecord, OrganizationRecord, UsageTierRecord | None]


class RateLimitPlans:
    """The plans of all callers; `tier` finds the records of limit tiers."""

    def __init__(self, tier: Callable[[str], UsageTierRecord | None]) -> None:
        self._tier = tier
        self._known: dict[str, tuple[Sources, RateLimitPlan | None]] = {}

    def plan(
        self, key: ApiKeyRecord, project: ProjectRecord, organization: OrganizationRecord
    ) -> RateLimitPlan | None:
        """Return what a caller is held to; None where nothing limits it."""
        tier_id = organization.limit_tier_id
        tier = None if tier_id is None else self._tier(tier_id)
        known = self._known.get(key.key_id)
        if known is not None:
            was, plan = known
            # Records never change: another one is another object.
            if was[0] is key and was[1] is project and was[2] is organization and was[3] is tier:
                return plan
        if len(self._known) >= PLANS_MAX:
            self._known.clear()
        plan = make_plan(key, project, organization, tier)
        self._known[key.key_id] = ((key, project, organization, tier), plan)
        return plan


def make_plan(
    key: ApiKeyRecord,
    project: ProjectRecord,
    organization: OrganizationRecord,
    tier: UsageTierRecord | None,
) -> RateLimitPlan | None:
    """Return what the records say together; None where nothing is limited."""
    mine, by_model = limits_of(organization, tier)
    organization_id = organization.organization_id
    base = (
        *_checks("key", key.key_id, key.limits),
        *_checks("project", project.project_id, project.limits),
        *_checks("organization", organization_id, mine),
    )
    of_models = {
        id_: found
        for id_, limits in by_model.items()
        if (found := tuple(_checks("organization", organization_id, limits, id_)))
    }
    if not (base or of_models):
        return None
    tenant_id = organization_id if organization.is_paying else NEVER_PAID
    return RateLimitPlan(tenant_id, base, of_models)


def limits_of(
    organization: OrganizationRecord, tier: UsageTierRecord | None
) -> tuple[RateLimitSettings, dict[str, RateLimitSettings]]:
    """Return an organization's limits, on all models and by model: its own before its tier's."""
    listed = RateLimitSettings() if tier is None else tier.limits
    by_model = _by_model(() if tier is None else tier.model_limits)
    own = organization.own_limits
    return (listed if own is None else own), by_model | _by_model(organization.own_model_limits)


def _by_model(rows: Iterable[ModelRateLimits]) -> dict[str, RateLimitSettings]:
    return {row.model_id: row.limits for row in rows}


def _checks(
    owner: Owner, owner_id: str, limits: RateLimitSettings, model_id: str | None = None
) -> Iterable[RateLimit]:
    wanted: tuple[tuple[Measure, int | None], ...] = (
        ("requests", limits.requests_per_minute),
        ("input_tokens", limits.input_tokens_per_minute),
        ("output_tokens", limits.output_tokens_per_minute),
        ("concurrent", limits.concurrent_requests),
    )
    for measure, limit in wanted:
        if limit is not None:
            name = count_name(owner_id, measure, model_id)
            yield RateLimit(name, owner, owner_id, measure, limit, model_id)
