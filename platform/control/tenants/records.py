"""Organizations and projects as the data plane needs them."""

from control.publish.services import News
from control.tenants.models import Organization, Project
from serving.contract.budget import balance_budget_id, limit_budget_id
from serving.contract.records import OrganizationRecord, ProjectRecord


def organization_news(organization: Organization) -> News:
    """Return what to publish of an organization: its balance always, its limit where it is set."""
    limit = [] if organization.spend_limit_nanos is None else [limit_budget_id(organization.id)]
    record = OrganizationRecord(
        organization_id=organization.id,
        status="active" if organization.is_active else "suspended",
        budget_ids=(balance_budget_id(organization.id), *limit),
        cache_salt_id=organization.cache_salt_id,
        weight=organization.weight,
    )
    return News("organization", organization.id, record)


def project_news(project: Project) -> News:
    """Return what to publish of a project; it is a budget where it has a spend limit."""
    record = ProjectRecord(
        project_id=project.id,
        organization_id=project.organization_id,
        status="archived" if project.is_archived else "active",
        budget_ids=() if project.spend_limit_nanos is None else (limit_budget_id(project.id),),
    )
    return News("project", project.id, record)
