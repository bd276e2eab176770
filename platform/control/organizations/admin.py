"""Admin pages of users, organizations and projects, and the base class of lists whose rows belong
to an organization."""

from functools import partial
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import Group
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action

from control.accounts.models import User
from control.admin.base import (
    OperatorAdmin,
    ReadOnlyAdmin,
    ReadOnlyInline,
    VersionedModelForm,
    operator,
    row_url,
)
from control.admin.confirm import Confirmation, ReasonForm, confirm
from control.admin.fields import NOTHING, dollars
from control.forms import CONFIRMED, is_confirmed
from control.organizations.models import Membership, Organization, OrganizationStatus, Project
from control.organizations.selectors import organization, organizations
from control.organizations.services import (
    rename_organization,
    resume_organization,
    set_allowed_regions,
    set_organization_terms,
    suspend_organization,
    suspension_effects,
)
from control.organizations.signals import limit_previewed
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


class OrganizationForm(VersionedModelForm):
    """An organization's name and terms."""

    def clean(self) -> dict[str, Any] | None:
        """Ask for a confirmation of a limit that stops work and is lower than before."""
        cleaned = super().clean()
        if self.errors or "spend_limit_nanos" not in self.changed_data:
            return cleaned
        nanos, before = self.cleaned_data["spend_limit_nanos"], self.initial["spend_limit_nanos"]
        if nanos is not None and (before is None or nanos < before):
            effects = limit_previewed.send(
                Organization, organization=self.instance, limit_nanos=nanos, now=timezone.now()
            )
            is_confirmed(self, nanos, " ".join(effect for _, effect in effects if effect))
        return cleaned


@admin.register(Organization)
class OrganizationAdmin(OperatorAdmin):
    """Organizations, which are created by a sign-up."""

    form = OrganizationForm
    list_display = ("name", "id", "status", "billing_mode", "spend_limit", "created_at")
    list_filter = ("status", "billing_mode")
    search_fields = ("name", "id", "memberships__user__email")
    fields = (
        "id", "name", "status", "suspended_reason", "billing_mode", "spend_limit_nanos",
        "credit_limit_nanos", "weight",
        "allowed_regions", "created_at",
    )  # fmt: skip
    readonly_fields = ("id", "status", "suspended_reason", "created_at")
    inlines = (MembershipInline, ProjectInline)
    actions_detail = ("suspend", "resume")

    dollars_help = {
        "spend_limit_nanos": _("In dollars per month (UTC). Leave empty for no limit."),
        "credit_limit_nanos": _(
            "In dollars: the usage, before tax, that a postpaid organization may owe. Prepaid ones"
            " may owe nothing."
        ),
    }
    column_labels = {"spend_limit_nanos": LIMIT, "credit_limit_nanos": _("Credit limit")}

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

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show the checkbox of a limit that is to be confirmed."""
        page = context["adminform"]
        if CONFIRMED in page.form.fields:
            [(name, options)] = page.fieldsets
            page.fieldsets = [(name, {**options, "fields": (*options["fields"], CONFIRMED)})]
        return super().render_change_form(request, context, *args, **kwargs)

    def has_suspend_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Allow support to suspend active organizations."""
        return self._may_set(request, object_id, OrganizationStatus.ACTIVE)

    def has_resume_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Allow support to resume suspended organizations."""
        return self._may_set(request, object_id, OrganizationStatus.SUSPENDED)

    def _may_set(self, request: HttpRequest, object_id: str, status: str) -> bool:
        may = operator_can(operator(request).operator_role, Permission.CUSTOMERS_WRITE)
        return may and organizations().filter(id=unquote(object_id), status=status).exists()

    def change_row(self, actor: Actor, row: Organization, changes: dict[str, Any]) -> Organization:
        """Rename an organization, bind it to regions or set its terms."""
        if "name" in changes:
            rename_organization(actor=actor, organization=row, name=changes.pop("name"))
        if "allowed_regions" in changes:
            regions = changes.pop("allowed_regions")
            set_allowed_regions(actor=actor, organization=row, allowed_regions=regions)
        if changes:
            set_organization_terms(
                actor=actor,
                organization=row,
                billing_mode=row.billing_mode,
                spend_limit_nanos=row.spend_limit_nanos,
                credit_limit_nanos=row.credit_limit_nanos,
                weight=row.weight,
            )
        return row

    @action(description=_("Suspend"), permissions=["suspend"])
    def suspend(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what follows and ask for a reason; on POST, suspend the organization."""
        row = organization(unquote(object_id))
        words = gettext("The reason is shown to its members and sent to its owners.")
        effects = [(effect,) for effect in suspension_effects(row)]
        confirmation = Confirmation(
            gettext("Suspend %(organization)s") % {"organization": row},
            words,
            ReasonForm,
            partial(suspend_organization, organization=row),
            {"headers": (_("What follows"),), "rows": effects},
        )
        return confirm(self, request, row, confirmation)

    @action(description=_("Resume"), permissions=["resume"])
    def resume(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a reason; on POST, resume the organization."""
        row = organization(unquote(object_id))
        words = gettext(
            "Its keys work again within a second, except those that were revoked or have expired."
            " An email goes to its owners. The reason is for the audit log."
        )
        confirmation = Confirmation(
            gettext("Resume %(organization)s") % {"organization": row},
            words,
            ReasonForm,
            partial(resume_organization, organization=row),
        )
        return confirm(self, request, row, confirmation)


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
        """Return the organization's name with a link to it, or its id if it has no row."""
        if not row.owner_name:
            return row.organization_id
        url = organization_url(row.organization_id)
        return format_html(
            '<a href="{}" title="{}">{}</a>', url, row.organization_id, row.owner_name
        )


def organization_url(organization_id: str) -> str:
    """Return the address of an organization's page."""
    return row_url("admin:organizations_organization_change", organization_id)
