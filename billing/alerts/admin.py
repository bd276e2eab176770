"""The operator's view of the alerts that customers were sent."""

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from billing.alerts.models import Alert
from control.admin.base import ReadOnlyAdmin
from control.admin.fields import displayed


class NotifiedFilter(admin.BooleanFieldListFilter):
    """The filter by whether the customer was notified."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.title = _("notified")


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    """Alerts, the newest first."""

    list_display = ("created_at", "organization_id", "kind", "rule", "budget_id", "notified")
    list_filter = ("kind", ("is_told", NotifiedFilter))
    search_fields = ("organization_id", "budget_id")
    column_labels = {"is_told": _("Notified")}
    ordering = ("-created_at",)

    notified = displayed("is_told", _("Notified"), ordering="is_told", boolean=True)
