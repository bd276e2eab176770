"""Admin page of API keys, which operators can read and revoke."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin
from control.api_keys import services
from control.api_keys.models import ApiKey


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """API keys."""

    list_display = (
        "name", "masked", "state", "organization", "project", "kind", "last_used_at",
        "expires_at", "revoked_at",
    )  # fmt: skip
    list_select_related = ("organization", "project")
    list_filter = ("kind", "pepper_id")
    search_fields = ("id", "name", "prefix", "last_four", "organization__name")
    exclude = ("digest",)
    actions = ("revoke",)

    @admin.display(description=_("State"))
    def state(self, key: ApiKey) -> str:
        return str(key.state(timezone.now()).label)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Allow support to revoke keys."""
        return bool(request.user.has_perm("api_keys.change_apikey"))

    @admin.action(
        description=_("Revoke: the keys stop working within a second, for good"),
        permissions=["revoke"],
    )
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        self.carry_out(
            request, queryset, _("%(row)s is revoked."),
            lambda actor, row: services.revoke_key(actor=actor, key=row),
        )  # fmt: skip
