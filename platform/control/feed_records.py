"""Builds the organization, project and API key records that gateways read. Each record draws on
several packages, so it is built above them: a service names the row that it changed
(`feed.services.FeedRef`), and publishing calls `build_records`."""

from collections.abc import Collection, Sequence

from msgspec import UNSET

from control.api_keys.models import ApiKey, PreviousSecret
from control.api_keys.selectors import previous_secrets_of
from control.feed.services import FeedRecord
from control.limits.rate_limits import (
    OrganizationRateLimits,
    organization_rate_limits,
    own_limits_of,
)
from control.limits.spending import short_period_limit_ids
from control.organizations.models import BillingMode, Organization, Project
from serving.contract.budget import balance_budget_id, limit_budget_id
from serving.contract.records import (
    ApiKeyRecord,
    OrganizationRecord,
    PreviousSecretRecord,
    ProjectRecord,
    RateLimitSettings,
)


def build_key_records(ids: Collection[str]) -> list[FeedRecord]:
    """Return the feed records of API keys: a record while the key is active, else its deletion.

    Keys of a suspended organization stay, so that gateways can report why a request is refused.
    """
    short, own, old = short_period_limit_ids(ids), own_limits_of(ids), previous_secrets_of(ids)
    return [
        FeedRecord(
            "api_key",
            key.id,
            _key_record(
                key,
                short.get(key.id, ()),
                own.get(key.id, RateLimitSettings()),
                old.get(key.id, ()),
            ),
        )
        if _is_active(key)
        else FeedRecord("api_key", key.id, None)
        for key in ApiKey.objects.select_related("project").filter(id__in=ids).order_by("id")
    ]


def _is_active(key: ApiKey) -> bool:
    return key.revoked_at is None and not key.project.is_archived


def _key_record(
    key: ApiKey, short: tuple[str, ...], limits: RateLimitSettings, old: Sequence[PreviousSecret]
) -> ApiKeyRecord:
    monthly = () if key.spend_limit_nanos is None else (limit_budget_id(key.id),)
    return ApiKeyRecord(
        key_id=key.id,
        digest=key.digest,
        organization_id=key.organization_id,
        project_id=key.project_id,
        scopes=tuple(key.scopes),
        models=None if key.allowed_models is None else tuple(key.allowed_models),
        networks=None if key.allowed_networks is None else tuple(key.allowed_networks),
        expires_at=key.expires_at,
        budget_ids=monthly + short,
        limits=limits,
        old_secrets=tuple(PreviousSecretRecord(one.digest, one.ends_at) for one in old) or UNSET,
    )


def build_organization_records(ids: Collection[str]) -> list[FeedRecord]:
    """Return the feed records of organizations, always with the balance, with limits where set."""
    short, rates = short_period_limit_ids(ids), organization_rate_limits(ids)
    return [
        FeedRecord(
            "organization", one.id, _organization_record(one, short.get(one.id, ()), rates[one.id])
        )
        for one in Organization.objects.filter(id__in=ids).order_by("id")
    ]


def build_project_records(ids: Collection[str]) -> list[FeedRecord]:
    """Return the feed records of projects; those with limits have budgets."""
    short, own = short_period_limit_ids(ids), own_limits_of(ids)
    return [
        FeedRecord(
            "project",
            one.id,
            _project_record(one, short.get(one.id, ()), own.get(one.id, RateLimitSettings())),
        )
        for one in Project.objects.filter(id__in=ids).order_by("id")
    ]


def _organization_record(
    organization: Organization, short: tuple[str, ...], rates: OrganizationRateLimits
) -> OrganizationRecord:
    return OrganizationRecord(
        organization_id=organization.id,
        status="active" if organization.is_active else "suspended",
        budget_ids=(balance_budget_id(organization.id), *_monthly(organization), *short),
        cache_salt_id=organization.cache_salt_id,
        weight=organization.weight,
        limit_tier_id=rates.limit_tier_id,
        own_limits=rates.own_limits,
        own_model_limits=tuple(rates.own_model_limits),
        takes_idempotency_keys=organization.idempotency_enabled,
        allowed_regions=tuple(organization.allowed_regions) or None,
        is_paying=rates.has_paid or _has_terms(organization),
    )


def _has_terms(organization: Organization) -> bool:
    """Return whether operators gave it terms of a paying customer: invoices, or a weight."""
    return organization.billing_mode == BillingMode.POSTPAID or organization.weight > 1


def _project_record(
    project: Project, short: tuple[str, ...], limits: RateLimitSettings
) -> ProjectRecord:
    return ProjectRecord(
        project_id=project.id,
        organization_id=project.organization_id,
        status="archived" if project.is_archived else "active",
        budget_ids=(*_monthly(project), *short),
        limits=limits,
        allowed_origins=tuple(project.allowed_origins),
    )


def _monthly(limited: Organization | Project) -> tuple[str, ...]:
    return () if limited.spend_limit_nanos is None else (limit_budget_id(limited.id),)


BUILDERS = {
    "organization": build_organization_records,
    "project": build_project_records,
    "api_key": build_key_records,
}


def build_records(kind: str, ids: Collection[str]) -> list[FeedRecord]:
    """Return the feed records of the rows of a kind, as of this transaction."""
    return BUILDERS[kind](ids)
