"""Organizations and projects as the data plane needs them."""

from collections.abc import Collection

from control.budgets.limits import fine_budget_ids
from control.limits.records import OfOrganization, of_organizations, own_limits
from control.publish.services import News
from control.tenants.models import Organization, Project
from serving.contract.budget import balance_budget_id, limit_budget_id
from serving.contract.records import Limits, OrganizationRecord, ProjectRecord


def news_of_organizations(ids: Collection[str]) -> list[News]:
    """Return what to publish of organizations: their balance always, their limits where set."""
    fine, rates = fine_budget_ids(ids), of_organizations(ids)
    return [
        News("organization", one.id, _organization(one, fine.get(one.id, ()), rates[one.id]))
        for one in Organization.objects.filter(id__in=ids).order_by("id")
    ]


def news_of_projects(ids: Collection[str]) -> list[News]:
    """Return what to publish of projects; they have budgets where they have limits."""
    fine, own = fine_budget_ids(ids), own_limits(ids)
    return [
        News("project", one.id, _project(one, fine.get(one.id, ()), own.get(one.id, Limits())))
        for one in Project.objects.filter(id__in=ids).order_by("id")
    ]


def _organization(
    organization: Organization, fine: tuple[str, ...], rates: OfOrganization
) -> OrganizationRecord:
    return OrganizationRecord(
        organization_id=organization.id,
        status="active" if organization.is_active else "suspended",
        budget_ids=(balance_budget_id(organization.id), *_monthly(organization), *fine),
        cache_salt_id=organization.cache_salt_id,
        weight=organization.weight,
        limit_tier_id=rates.limit_tier_id,
        own_limits=rates.own_limits,
        own_model_limits=tuple(rates.own_model_limits),
        takes_idempotency_keys=organization.takes_idempotency_keys,
    )


def _project(project: Project, fine: tuple[str, ...], limits: Limits) -> ProjectRecord:
    return ProjectRecord(
        project_id=project.id,
        organization_id=project.organization_id,
        status="archived" if project.is_archived else "active",
        budget_ids=(*_monthly(project), *fine),
        limits=limits,
        allowed_origins=tuple(project.allowed_origins),
    )


def _monthly(limited: Organization | Project) -> tuple[str, ...]:
    return () if limited.spend_limit_nanos is None else (limit_budget_id(limited.id),)
