"""The operators' read-only view of customers' webhooks."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin
from control.webhooks import selectors
from control.webhooks.models import WebhookEndpoint


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(ReadOnlyAdmin):
    """Endpoints, the failing ones first. Their URLs may hold customers' tokens, so only the host is
    shown."""

    list_display = ("id", "organization", "host", "state", "failing_since", "created_at")
    list_select_related = ("organization",)
    list_filter = ("is_enabled",)
    search_fields = ("=id", "organization__name", "=organization__id")
    fields = (
        "id", "organization", "host", "event_types", "state", "disabled_reason",
        "failing_since", "created_at",
    )  # fmt: skip
    readonly_fields = ("host", "state")

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookEndpoint]:
        """Return the endpoints that are not deleted."""
        return selectors.all_endpoints()

    @admin.display(description=_("state"))
    def state(self, endpoint: WebhookEndpoint) -> str:
        """Return whether it receives events."""
        return str(endpoint.state.label)

    @admin.display(description=_("host"))
    def host(self, endpoint: WebhookEndpoint) -> str:
        """Return the host of the URL, without path and query."""
        return endpoint.host
