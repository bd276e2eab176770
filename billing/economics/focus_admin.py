"""The operator's FOCUS export: a period, one organization or all, and the file."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminSingleDateWidget

from billing.economics.focus import Days, focus_csv
from billing.economics.models import CostExport
from billing.economics.replay_runs import last_month
from control.admin.base import ReadOnlyAdmin, operator
from control.api.streaming import stream_export
from control.errors import ServiceError
from control.organizations.selectors import organizations


class ExportForm(forms.Form):
    """Accounting days, both included."""

    first = forms.DateField(label=_("From"), widget=UnfoldAdminSingleDateWidget)
    last = forms.DateField(
        label=_("To"), widget=UnfoldAdminSingleDateWidget, help_text=_("Included.")
    )
    organization = forms.ModelChoiceField(
        organizations(),
        label=_("Organization"),
        required=False,
        empty_label=_("All"),
        widget=UnfoldAdminSelectWidget,
    )


@admin.register(CostExport)
class CostExportAdmin(ReadOnlyAdmin):
    """One page with a form in place of a list."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Operators alone see what every organization pays; there are no rows to open."""
        return obj is None and operator(request).is_operator

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponseBase:
        """Ask for a period, and send the file."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        first, last = last_month(timezone.now())
        form = ExportForm(request.GET or None, initial={"first": first, "last": last})
        if form.is_valid():
            chosen = form.cleaned_data
            try:
                return _file(request, Days(chosen["first"], chosen["last"], _id(chosen)))
            except ServiceError as error:
                messages.error(request, error.message)
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "form": form,
            "title": gettext("FOCUS export"),
        }  # fmt: skip
        return TemplateResponse(request, "admin/economics/focus.html", context)


def _id(chosen: dict[str, Any]) -> str | None:
    return chosen["organization"].pk if chosen["organization"] else None


def _file(request: HttpRequest, days: Days) -> HttpResponseBase:
    name = f"focus-{days.first}-{days.last}.csv"
    chunks = focus_csv(days)
    return stream_export(request, chunks, content_type="text/csv; charset=utf-8", name=name)
