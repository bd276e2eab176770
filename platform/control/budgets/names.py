"""What the limited are called."""

from collections.abc import Iterable

from control.keys.models import ApiKey
from control.tenants.models import Organization, Project


def names_of(ids: Iterable[str]) -> dict[str, str]:
    """Return the names of organizations, projects and keys, by id."""
    wanted = list(ids)
    found: dict[str, str] = {}
    for kind in (Organization, Project, ApiKey):
        found |= dict(kind.objects.filter(id__in=wanted).values_list("id", "name"))
    return found
