"""The operator's view of what customers were told."""

from django.contrib import admin

from billing.alerts.models import Alert
from control.admin.base import ReadOnlyAdmin


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    """Alerts, the newest first."""

    list_display = ("created_at", "organization_id", "kind", "rule", "budget_id", "is_told")
    list_filter = ("kind", "is_told")
    search_fields = ("organization_id", "budget_id")
    ordering = ("-created_at",)
