"""The admin pages of exports and erasures, which operators request for a person."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminEmailInputWidget, UnfoldAdminTextInputWidget

from control.accounts.models import locked_user, user_by_email
from control.admin.base import OperatorAdmin, operator, row_url
from control.api.streaming import whole_export
from control.data_requests import services
from control.data_requests.models import DataSubjectRequest
from control.errors import ObjectNotFound
from control.permissions import Actor, Permission, require_operator


class DataSubjectRequestForm(forms.ModelForm):
    """The form for a person's email address and the kind of request."""

    email = forms.EmailField(label=_("Email"), widget=UnfoldAdminEmailInputWidget)
    confirmation = forms.CharField(
        label=_("Confirm email"),
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_(
            "Only to erase: enter the email again. Erasure can't be undone; a dry run shows what it"
            " would do."
        ),
    )

    class Meta:
        model = DataSubjectRequest
        fields = ("kind",)

    def clean_email(self) -> str:
        """Return the address in lower case. Raises ValidationError if nobody has it."""
        email: str = self.cleaned_data["email"].lower()
        if user_by_email(email) is None:
            raise forms.ValidationError(gettext("No user has this email."))
        return email


@admin.register(DataSubjectRequest)
class DataSubjectRequestAdmin(OperatorAdmin):
    """Exports and erasures."""

    form = DataSubjectRequestForm
    list_display = ("created_at", "kind", "state", "percent", "person_id", "asked_by")
    list_filter = ("kind", "state")
    list_select_related = ("asked_by",)
    search_fields = ("id", "person__id", "person__email")
    add_fields = ("email", "kind", "confirmation")
    look_fields = (
        "id", "kind", "state", "percent", "person", "asked_by", "what_was_done", "download",
        "created_at", "finished_at",
    )  # fmt: skip

    def get_fields(self, request: HttpRequest, obj: DataSubjectRequest | None = None) -> Any:
        """Return the form's fields for a new request, all fields for an existing one."""
        return self.look_fields if obj else self.add_fields

    def get_readonly_fields(
        self, request: HttpRequest, obj: DataSubjectRequest | None = None
    ) -> Any:
        """Make existing requests read-only."""
        return self.look_fields if obj else ()

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return requests without their exports."""
        return super().get_queryset(request).defer("export")

    def has_change_permission(
        self, request: HttpRequest, obj: DataSubjectRequest | None = None
    ) -> bool:
        """Nobody may change requests."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of exports."""
        page = self.admin_site.admin_view(self.export_view)
        return [
            path("<path:request_id>/export/", page, name="data_requests_datasubjectrequest_export"),
            *super().get_urls(),
        ]

    def export_view(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        """Send an export to an operator who may help customers."""
        actor = operator(request)
        require_operator(actor, Permission.CUSTOMERS_WRITE)
        data_request = services.any_request(unquote(request_id))
        return whole_export(
            request,
            lambda: services.take_export(actor=actor, request=data_request),
            content_type="application/zip",
            name=data_request.file_name,
        )

    def add_row(self, actor: Actor, values: dict[str, Any]) -> DataSubjectRequest:
        user = user_by_email(values["email"])
        if user is None or actor.user_id is None:
            raise ObjectNotFound(gettext("No user has this email."))
        return services.create_request(
            actor=actor,
            asked_by=locked_user(actor.user_id),
            user=user,
            kind=values["kind"],
            confirmation=values.get("confirmation", ""),
        )

    @admin.display(description=_("Result"))
    def what_was_done(self, row: DataSubjectRequest) -> str:
        """Return what was done, or would be done, one item per line."""
        return format_html_join("", "<div>{}</div>", ((each,) for each in row.told)) or "-"

    @admin.display(description=_("Export"))
    def download(self, row: DataSubjectRequest) -> str:
        """Return the link to the export."""
        if not row.has_export:
            return "-"
        url = row_url("admin:data_requests_datasubjectrequest_export", row.id)
        return format_html(
            '<a class="text-primary-600" href="{}">{}</a>',
            url,
            gettext("Download (kept for a week)"),
        )
