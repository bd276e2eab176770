"""Questions about idempotency keys."""

from control.idempotency.models import Shelf
from control.tenants.models import Organization


def shelf(organization: Organization) -> Shelf:
    """Return how many keys an organization has, and how many bytes of answers."""
    found = Shelf.objects.filter(organization=organization).first()
    return found or Shelf(organization=organization)
