"""The operator's view of limits by the week and the day, and of soft ones."""

from django.contrib import admin

from control.admin.base import ReadOnlyAdmin
from control.admin.fields import dollars
from control.budgets.models import SpendLimit


@admin.register(SpendLimit)
class SpendLimitAdmin(ReadOnlyAdmin):
    """Limits that organizations set for themselves."""

    list_display = ("budget_id", "organization", "period", "limit", "is_hard", "created_at")
    list_filter = ("period", "is_hard")
    list_select_related = ("organization",)
    search_fields = ("budget_id", "organization__name", "organization__id")
    fields = ("budget_id", "organization", "period", "limit", "is_hard", "created_at")
    readonly_fields = ("limit",)
    ordering = ("-created_at",)

    limit = dollars("limit_nanos", "Limit")
