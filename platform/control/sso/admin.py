"""The operator's view of organizations' own sign-in: the way back in where a provider is broken."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from control.admin.base import ReadOnlyAdmin
from control.sso.connections import stop_enforcing
from control.sso.models import SsoConnection


@admin.register(SsoConnection)
class SsoConnectionAdmin(ReadOnlyAdmin):
    """Connections, to look at, and to make optional for who is locked out."""

    list_display = ("organization", "protocol", "issuer", "is_enforced", "is_tried", "created_at")
    list_select_related = ("organization",)
    list_filter = ("protocol", "is_enforced")
    search_fields = ("organization__name", "=organization__id", "issuer")
    fields = ("organization", "protocol", "issuer", "is_enforced", "is_tried", "created_at")
    actions = ("make_optional",)

    def has_optional_permission(self, request: HttpRequest) -> bool:
        """Who helps customers lets them in."""
        return bool(request.user.has_perm("sso.change_ssoconnection"))

    @admin.action(
        description="Make SSO optional: people sign in by other ways again",
        permissions=["optional"],
    )
    def make_optional(self, request: HttpRequest, queryset: QuerySet[SsoConnection]) -> None:
        """Let the people of the organizations in by other ways."""
        self.carry_out(
            request, queryset, "is optional now",
            lambda actor, row: stop_enforcing(actor=actor, organization=row.organization),
        )  # fmt: skip
