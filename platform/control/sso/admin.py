"""Admin page of SSO connections, to make SSO optional where a provider is broken."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin
from control.sso.connections import stop_enforcing
from control.sso.models import SsoConnection


@admin.register(SsoConnection)
class SsoConnectionAdmin(ReadOnlyAdmin):
    """SSO connections, read-only except for making SSO optional."""

    list_display = ("organization", "protocol", "issuer", "is_enforced", "is_tried", "created_at")
    list_select_related = ("organization",)
    list_filter = ("protocol", "is_enforced")
    search_fields = ("organization__name", "=organization__id", "issuer")
    fields = ("organization", "protocol", "issuer", "is_enforced", "is_tried", "created_at")
    actions = ("make_optional",)

    def has_optional_permission(self, request: HttpRequest) -> bool:
        """Allow support to make SSO optional."""
        return bool(request.user.has_perm("sso.change_ssoconnection"))

    @admin.action(
        description=_("Make SSO optional: people can sign in in other ways again"),
        permissions=["optional"],
    )
    def make_optional(self, request: HttpRequest, queryset: QuerySet[SsoConnection]) -> None:
        """Make SSO optional for the organizations."""
        self.carry_out(
            request, queryset, _("%(row)s is optional now."),
            lambda actor, row: stop_enforcing(actor=actor, organization=row.organization),
        )  # fmt: skip
