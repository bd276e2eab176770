"""Admin pages of users, organizations and projects, and the base class of lists whose rows belong
to an organization."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from control.accounts.models import User
from control.admin.base import OperatorAdmin, ReadOnlyAdmin, ReadOnlyInline, operator
from control.admin.fields import NOTHING, dollars
from control.organizations.models import Membership, Organization, Project
from control.organizations.selectors import organizations
from control.organizations.services import (
    rename_organization,
    resume_organization,
    set_organization_terms,
    suspend_organization,
)
from control.permissions import Actor, Permission, operator_can

LIMIT = _("Spending limit per month")

# Roles replace groups; addresses, second factors and sessions are private to their users.
for table in (Group, EmailAddress, Authenticator, UserSession):
    admin.site.unregister(table)


class MembershipInline(ReadOnlyInline):
    """The memberships of an organization or of a user."""

    model = Membership
    fields = ("organization", "user", "role", "created_at")


class ProjectInline(ReadOnlyInline):
    """The projects of an organization."""

    model = Project
    fields = ("name", "spend_limit", "created_at", "archived_at")
    readonly_fields = ("spend_limit",)

    spend_limit = dollars("spend_limit_nanos", LIMIT)


@admin.register(Organization)
class OrganizationAdmin(OperatorAdmin):
    """Organizations, which are created by a sign-up."""

    list_display = ("name", "id", "status", "billing_mode", "spend_limit", "created_at")
    list_filter = ("status", "billing_mode")
    search_fields = ("name", "id", "memberships__user__email")
    fields = (
        "id", "name", "status", "billing_mode", "spend_limit_nanos", "weight", "created_at",
    )  # fmt: skip
    readonly_fields = ("id", "status", "created_at")
    inlines = (MembershipInline, ProjectInline)
    actions = ("suspend", "resume")

    dollars_help = {"spend_limit_nanos": _("In dollars per month (UTC). Leave empty for no limit.")}
    column_labels = {"spend_limit_nanos": LIMIT}

    spend_limit = dollars("spend_limit_nanos", LIMIT)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: an organization is created by its owner."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Allow support to rename and finance to set terms; the services check which."""
        role = operator(request).operator_role
        return operator_can(role, Permission.CUSTOMERS_WRITE) or operator_can(
            role, Permission.FINANCE_WRITE
        )

    def has_suspend_permission(self, request: HttpRequest) -> bool:
        """Allow support to suspend and resume organizations."""
        return operator_can(operator(request).operator_role, Permission.CUSTOMERS_WRITE)

    def change_row(self, actor: Actor, row: Organization, changes: dict[str, Any]) -> Organization:
        """Rename an organization or set its terms."""
        if "name" in changes:
            rename_organization(actor=actor, organization=row, name=changes.pop("name"))
        if changes:
            set_organization_terms(
                actor=actor,
                organization=row,
                billing_mode=row.billing_mode,
                spend_limit_nanos=row.spend_limit_nanos,
                weight=row.weight,
            )
        return row

    @admin.action(description=_("Suspend: all keys stop working at once"), permissions=["suspend"])
    def suspend(self, request: HttpRequest, queryset: QuerySet[Organization]) -> None:
        """Suspend the organizations."""
        self.carry_out(
            request, queryset, _("%(row)s is suspended."),
            lambda actor, row: suspend_organization(actor=actor, organization=row),
        )  # fmt: skip

    @admin.action(description=_("Resume: all keys work again"), permissions=["suspend"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Organization]) -> None:
        """Resume the organizations."""
        self.carry_out(
            request, queryset, _("%(row)s is active again."),
            lambda actor, row: resume_organization(actor=actor, organization=row),
        )  # fmt: skip


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin):
    """Projects."""

    list_display = ("name", "organization", "spend_limit", "created_at", "archived_at")
    list_select_related = ("organization",)
    search_fields = ("name", "id", "organization__name")
    fields = ("id", "name", "organization", "spend_limit", "created_at", "archived_at")
    readonly_fields = ("spend_limit",)

    spend_limit = dollars("spend_limit_nanos", LIMIT)


@admin.register(User)
class UserAdmin(ReadOnlyAdmin):
    """Users."""

    list_display = ("email", "name", "operator_role", "is_active", "created_at", "last_login")
    search_fields = ("email", "name")
    fields = (
        "id", "email", "name", "is_active", "operator_role", "created_at", "last_login",
        "erased_at",
    )  # fmt: skip
    inlines = (MembershipInline,)


class OrganizationOwnedAdmin(OperatorAdmin):
    """List of rows with an `organization_id`; `owner` shows the name, and the id on hover."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows with their organizations' names."""
        owners = organizations().filter(id=OuterRef("organization_id")).order_by()
        return (
            super().get_queryset(request).annotate(owner_name=Subquery(owners.values("name")[:1]))
        )

    @admin.display(description=_("Organization"), empty_value=NOTHING)
    def owner(self, row: Any) -> str:
        """Return the organization's name, or its id if it has no row."""
        name = row.owner_name or row.organization_id
        return name and format_html('<span title="{}">{}</span>', row.organization_id, name)
