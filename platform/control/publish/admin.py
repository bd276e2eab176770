"""The operator's view of the change feed."""

from django.contrib import admin

from control.operator_admin import ReadOnlyAdmin
from control.publish.models import Change


@admin.register(Change)
class ChangeAdmin(ReadOnlyAdmin):
    """Published changes."""

    list_display = ("version", "kind", "record_id", "created_at")
    list_filter = ("kind",)
    search_fields = ("record_id",)
    ordering = ("-version",)
