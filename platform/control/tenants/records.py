"""Organizations and projects as the data plane needs them."""

from control.publish.services import News
from control.tenants.models import Organization, Project
from serving.contract.records import OrganizationRecord, ProjectRecord


def organization_news(organization: Organization) -> News:
    """Return what to publish of an organization; its budget is its own id."""
    record = OrganizationRecord(
        organization_id=organization.id,
        status="active" if organization.is_active else "suspended",
        budget_id=organization.id,
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
        budget_id=None if project.spend_limit_nanos is None else project.id,
    )
    return News("project", project.id, record)
