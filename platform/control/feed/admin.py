"""The operators' view of the change feed."""

import json

from django.contrib import admin
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin
from control.admin.fields import indented
from control.feed.models import PublishedChange


@admin.register(PublishedChange)
class PublishedChangeAdmin(ReadOnlyAdmin):
    """Published changes."""

    list_display = ("version", "kind", "record_id", "created_at")
    list_filter = ("kind",)
    search_fields = ("record_id",)
    ordering = ("-version",)
    fields = ("version", "kind", "record_id", "content", "created_at")
    readonly_fields = ("version", "content")

    @admin.display(description=_("Record"))
    def content(self, change: PublishedChange) -> str:
        """Return the record; a change without one is a deletion."""
        if change.record is None:
            return gettext("deleted")
        return indented(json.loads(change.record))
