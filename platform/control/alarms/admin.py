"""The operators' view of alarms."""

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin
from control.alarms.catalogue import EVIDENCE_LINKS, describe, evidence_url
from control.alarms.models import AlarmCount
from control.alarms.page import AlarmsPage


@admin.register(AlarmCount)
class AlarmCountAdmin(ReadOnlyAdmin):
    """Alarms by day; the page of alarms says what they mean."""

    list_display = ("day", "alarm", "organization_id", "count")
    list_filter = ("kind",)
    search_fields = ("=organization_id",)
    fields = ("day", "alarm", "meaning", "to_do", "behind", "organization_id", "count")
    readonly_fields = ("alarm", "meaning", "to_do", "behind")
    ordering = ("-day", "kind")

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the URL of the page of alarms."""
        return (("overview/", "alarms_overview", AlarmsPage.as_view(model_admin=self)),)

    @admin.display(description=_("Alarm"), ordering="kind")
    def alarm(self, row: AlarmCount) -> str:
        """Return the kind's name."""
        return str(describe(row.kind).name)

    @admin.display(description=_("What it means"))
    def meaning(self, row: AlarmCount) -> str:
        """Return what happened."""
        return str(describe(row.kind).meaning)

    @admin.display(description=_("What to do"))
    def to_do(self, row: AlarmCount) -> str:
        """Return what an operator does about it."""
        return str(describe(row.kind).action)

    @admin.display(description=_("Behind it"))
    def behind(self, row: AlarmCount) -> str:
        """Return a link to the rows that show it."""
        evidence = describe(row.kind).evidence
        url, text = evidence_url(evidence, row.kind), EVIDENCE_LINKS[evidence].text
        return format_html('<a href="{}">{}</a>', url, text)
