"""Admin pages of operators and their invitations, which owners change."""

from typing import Any

from allauth.mfa.utils import is_mfa_enabled
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from control.admin.base import OperatorAdmin
from control.operators.models import Operator, OperatorInvitation
from control.operators.selectors import open_invitations
from control.operators.services import (
    change_operator_role,
    invite_operator,
    remove_operator,
    revoke_operator_invitation,
)
from control.permissions import Actor, Permission, operator_can


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

    @admin.display(description="Second factor", boolean=True)
    def has_second_factor(self, row: Operator) -> bool:
        """Return whether a second factor is set up; the admin requires one."""
        return bool(is_mfa_enabled(row))

    def change_row(self, actor: Actor, row: Operator, changes: dict[str, Any]) -> Any:
        """Change an operator's role."""
        if "operator_role" not in changes:
            return row
        return change_operator_role(actor=actor, user=row, role=changes["operator_role"])

    @admin.action(description="Dismiss: the admin closes at once", permissions=["change"])
    def dismiss(self, request: HttpRequest, queryset: QuerySet[Operator]) -> None:
        """Remove the operators."""
        self.carry_out(
            request, queryset, "is no operator any more",
            lambda actor, row: remove_operator(actor=actor, user=row),
        )  # fmt: skip


@admin.register(OperatorInvitation)
class OperatorInvitationAdmin(OwnersAdmin):
    """Open invitations of operators."""

    list_display = ("email", "role", "invited_by", "created_at", "expires_at")
    list_select_related = ("invited_by",)
    fields = ("email", "role")
    actions = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the open invitations."""
        return open_invitations()

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Allow the list's action to owners, but no change of a single invitation."""
        return obj is None and super().has_change_permission(request)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> OperatorInvitation:
        """Invite an operator."""
        return invite_operator(actor=actor, **values)[0]

    @admin.action(description="Withdraw", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[OperatorInvitation]) -> None:
        """Revoke the invitations."""
        self.carry_out(
            request, queryset, "is withdrawn",
            lambda actor, row: revoke_operator_invitation(actor=actor, invitation=row),
        )  # fmt: skip
