"""Admin pages of operators and their invitations, which owners change, and of operator tokens,
which operators create for themselves."""

from typing import Any

from allauth.mfa.utils import is_mfa_enabled
from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from control.accounts.models import User
from control.admin.base import OperatorAdmin, operator
from control.operators.models import (
    TOKEN_PERMISSIONS,
    Operator,
    OperatorInvitation,
    OperatorToken,
)
from control.operators.selectors import open_invitations, tokens
from control.operators.services import (
    change_operator_role,
    create_operator_token,
    invite_operator,
    remove_operator,
    revoke_operator_invitation,
    revoke_operator_token,
)
from control.permissions import OPERATOR_PERMISSIONS, Actor, Permission, operator_can


class OwnersAdmin(OperatorAdmin):
    """Base class of pages that owners change and other operators read."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allow owners only."""
        return operator_can(
            getattr(request.user, "operator_role", None), Permission.OPERATORS_WRITE
        )

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Allow owners only."""
        return self.has_add_permission(request)


@admin.register(Operator)
class OperatorsAdmin(OwnersAdmin):
    """Operators, who join by invitation."""

    list_display = ("email", "operator_role", "has_second_factor", "last_login")
    list_filter = ("operator_role",)
    search_fields = ("email", "name")
    fields = ("email", "operator_role", "has_second_factor", "last_login")
    readonly_fields = ("email", "has_second_factor", "last_login")
    actions = ("dismiss",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the users who have an operator role."""
        return super().get_queryset(request).exclude(operator_role="")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: an operator is invited instead."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Allow owners only."""
        return super().has_add_permission(request)

    @admin.display(description=_("Second factor"), boolean=True)
    def has_second_factor(self, row: Operator) -> bool:
        """Return whether a second factor is set up; the admin requires one."""
        return bool(is_mfa_enabled(row))

    def change_row(self, actor: Actor, row: Operator, changes: dict[str, Any]) -> Any:
        """Change an operator's role."""
        if "operator_role" not in changes:
            return row
        return change_operator_role(actor=actor, user=row, role=changes["operator_role"])

    @admin.action(
        description=_("Remove operator: access to the admin ends at once"), permissions=["change"]
    )
    def dismiss(self, request: HttpRequest, queryset: QuerySet[Operator]) -> None:
        self.carry_out(
            request, queryset, _("%(row)s is no longer an operator."),
            lambda actor, row: remove_operator(actor=actor, user=row),
        )  # fmt: skip


@admin.register(OperatorInvitation)
class OperatorInvitationAdmin(OwnersAdmin):
    """Open invitations of operators."""

    list_display = ("email", "role", "state", "invited_by", "created_at", "expires_at")
    list_select_related = ("invited_by",)
    fields = ("email", "role")
    actions = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the open invitations."""
        return open_invitations()

    @admin.display(description=_("State"))
    def state(self, row: OperatorInvitation) -> str:
        """Return whether it can be accepted."""
        return str(row.state(timezone.now()).label)

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Allow the list's action to owners, but no change of a single invitation."""
        return obj is None and super().has_change_permission(request)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> OperatorInvitation:
        return invite_operator(actor=actor, **values)[0]

    @admin.action(description=_("Withdraw"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[OperatorInvitation]) -> None:
        self.carry_out(
            request, queryset, _("%(row)s is withdrawn."),
            lambda actor, row: revoke_operator_invitation(actor=actor, invitation=row),
        )  # fmt: skip


@admin.register(OperatorToken)
class OperatorTokenAdmin(OperatorAdmin):
    """Operator tokens: an operator's own, and for owners those of all."""

    list_display = (
        "name", "masked", "state", "created_by", "granted", "created_at", "expires_at",
        "last_used_at", "revoked_at",
    )  # fmt: skip
    list_filter = ("pepper_id",)
    list_select_related = ("created_by",)
    fields = ("name", "permissions", "expires_at")
    actions = ("revoke",)

    @admin.display(description=_("State"))
    def state(self, row: OperatorToken) -> str:
        """Return whether the token works."""
        return str(row.state(timezone.now()).label)

    @admin.display(description=_("Permissions"))
    def granted(self, row: OperatorToken) -> str:
        """Return the permissions in a line."""
        return ", ".join(row.permissions)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the operator's tokens; for an owner, all tokens."""
        actor = operator(request)
        is_owner = operator_can(actor.operator_role, Permission.OPERATORS_WRITE)
        return tokens(None if is_owner else User.objects.get(id=actor.user_id))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allow every operator: a token can do no more than they can."""
        return operator_can(getattr(request.user, "operator_role", None), Permission.PLATFORM_READ)

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Return False: a token is revoked, never changed."""
        return False

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Allow every operator; the list shows the tokens that they may revoke."""
        return self.has_add_permission(request)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Return the form field of a column; permissions are those of the operator's role."""
        if db_field.name != "permissions":
            return super().formfield_for_dbfield(db_field, request, **options)
        allowed = OPERATOR_PERMISSIONS[operator(request).operator_role or ""]
        return forms.MultipleChoiceField(
            choices=[(each, each) for each in TOKEN_PERMISSIONS if each in allowed],
            widget=UnfoldAdminCheckboxSelectMultipleWidget,
            help_text=_(
                "What scripts with this token may do. They can never do more than your role allows"
                " at the time."
            ),
        )

    def add_row(self, actor: Actor, values: dict[str, Any]) -> OperatorToken:
        """Create the token. Its secret is only shown in the response to this request."""
        token, secret = create_operator_token(actor=actor, **values)
        token.__dict__["secret"] = secret
        return token

    def response_add(
        self, request: HttpRequest, obj: OperatorToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the secret, once."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": gettext("Operator token %(name)s") % {"name": obj.name},
            "secret": obj.__dict__["secret"],
        }
        return TemplateResponse(request, "admin/operators/token_created.html", context)

    @admin.action(
        description=_("Revoke: scripts that use the token stop working"), permissions=["revoke"]
    )
    def revoke(self, request: HttpRequest, queryset: QuerySet[OperatorToken]) -> None:
        self.carry_out(
            request, queryset, _("%(row)s is revoked."),
            lambda actor, row: revoke_operator_token(actor=actor, token=row),
        )  # fmt: skip
