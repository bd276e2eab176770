"""The operator's view of users, organizations and projects."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from control.actor import Actor
from control.admin.base import OperatorAdmin, ReadOnlyAdmin, operator
from control.admin.fields import dollars
from control.operators import Duty, can
from control.tenants import operators_admin, services
from control.tenants.models import Membership, Organization, Project, User

LIMIT = "Spend limit per month"

__all__ = ["operators_admin"]

# Roles replace groups; addresses, second factors and sessions belong to their people.
for table in (Group, EmailAddress, Authenticator, UserSession):
    admin.site.unregister(table)


class LookOnlyInline(TabularInline):
    """Rows of another table, to look at."""

    extra = 0
    can_delete = False
    hide_title = True

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nothing is added here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nothing is changed here."""
        return False


class MembershipInline(LookOnlyInline):
    """The members of an organization, or the seats of a user."""

    model = Membership
    fields = ("organization", "user", "role", "created_at")


class ProjectInline(LookOnlyInline):
    """The projects of an organization."""

    model = Project
    fields = ("name", "spend_limit", "created_at", "archived_at")
    readonly_fields = ("spend_limit",)

    spend_limit = dollars("spend_limit_nanos", LIMIT)


@admin.register(Organization)
class OrganizationAdmin(OperatorAdmin):
    """Organizations. People make them by signing up."""

    list_display = ("name", "id", "status", "billing_mode", "spend_limit", "created_at")
    list_filter = ("status", "billing_mode")
    search_fields = ("name", "id", "memberships__user__email")
    fields = (
        "id", "name", "status", "billing_mode", "spend_limit_nanos", "weight", "created_at",
    )  # fmt: skip
    readonly_fields = ("id", "status", "created_at")
    inlines = (MembershipInline, ProjectInline)
    actions = ("suspend", "resume")

    dollars_help = {"spend_limit_nanos": "In dollars per UTC month; empty for no limit."}

    spend_limit = dollars("spend_limit_nanos", LIMIT)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """An organization needs an owner, who makes it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Who helps customers renames, who keeps the books sets terms: the services tell apart."""
        role = operator(request).operator_role
        return can(role, Duty.HELP_CUSTOMERS) or can(role, Duty.KEEP_BOOKS)

    def has_suspend_permission(self, request: HttpRequest) -> bool:
        """Who helps customers stops them, and lets them go on."""
        return can(operator(request).operator_role, Duty.HELP_CUSTOMERS)

    def change_row(self, actor: Actor, row: Organization, changes: dict[str, Any]) -> Organization:
        """Rename an organization, or set its terms."""
        if "name" in changes:
            services.rename_organization(actor=actor, organization=row, name=changes.pop("name"))
        if changes:
            services.set_organization_terms(
                actor=actor,
                organization=row,
                billing_mode=row.billing_mode,
                spend_limit_nanos=row.spend_limit_nanos,
                weight=row.weight,
            )
        return row

    @admin.action(description="Suspend: all keys stop at once", permissions=["suspend"])
    def suspend(self, request: HttpRequest, queryset: QuerySet[Organization]) -> None:
        """Suspend the organizations."""
        self.carry_out(
            request, queryset, "is suspended",
            lambda actor, row: services.suspend_organization(actor=actor, organization=row),
        )  # fmt: skip

    @admin.action(description="Resume: keys work again", permissions=["suspend"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Organization]) -> None:
        """End the suspensions."""
        self.carry_out(
            request, queryset, "works again",
            lambda actor, row: services.resume_organization(actor=actor, organization=row),
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
    """People."""

    list_display = ("email", "name", "operator_role", "is_active", "created_at", "last_login")
    search_fields = ("email", "name")
    fields = (
        "id", "email", "name", "is_active", "operator_role", "created_at", "last_login",
        "erased_at",
    )  # fmt: skip
    inlines = (MembershipInline,)
