"""The operator's view of the audit."""

from django.contrib import admin

from control.admin.rows import ReadOnlyAdmin
from control.audit.models import Deed


@admin.register(Deed)
class DeedAdmin(ReadOnlyAdmin):
    """What was done."""

    list_display = ("created_at", "actor_name", "action", "target_id", "organization_id")
    list_filter = ("action", "actor_kind")
    search_fields = ("actor_name", "target_id", "organization_id")
