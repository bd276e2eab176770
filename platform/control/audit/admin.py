"""The operator's view of the audit."""

from django.contrib import admin

from control.audit.models import Entry
from control.operator_admin import ReadOnlyAdmin


@admin.register(Entry)
class EntryAdmin(ReadOnlyAdmin):
    """What was done."""

    list_display = ("created_at", "actor_name", "action", "target_id", "organization_id")
    list_filter = ("action", "actor_kind")
    search_fields = ("actor_name", "target_id", "organization_id")
