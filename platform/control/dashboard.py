"""The figures on the admin's first page."""

from typing import Any

from django.http import HttpRequest

from control.catalog.fleet import fleet_view
from control.keys import selectors as keys
from control.publish import selectors as published
from control.tenants import selectors as tenants


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the admin's first page with a few figures."""
    fleet = fleet_view()
    ready_count = sum(each.state == "ready" for each in fleet.replicas)
    replicas = "the fleet does not answer" if fleet.is_down else f"{ready_count} ready"
    figures = {
        "Organizations": tenants.organizations().count(),
        "Live API keys": keys.all_keys().filter(revoked_at__isnull=True).count(),
        "Replicas": replicas,
        "Feed version": published.last_version(),
    }
    return {**context, "figures": figures.items()}
