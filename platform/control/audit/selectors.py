"""Questions about what was done."""

from django.db.models import QuerySet

from control.audit.models import Entry
from control.tenants.models import Organization


def entries(organization: Organization) -> QuerySet[Entry]:
    """Return what was done in an organization, newest first."""
    return Entry.objects.filter(organization_id=organization.id)
