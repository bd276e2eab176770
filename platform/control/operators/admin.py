"""The owner's view of operators: who they are, and who was invited."""

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
    """Pages of owners; other operators may look."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Owners alone choose operators."""
        return operator_can(
            getattr(request.user, "operator_role", None), Permission.OPERATORS_WRITE
        )

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Owners alone change what operators may do."""
        return self.has_add_permission(request)


@admin.register(Operator)
class OperatorsAdmin(OwnersAdmin):
    """Operators. They come by invitation."""

    list_display = ("email", "operator_role", "has_second_factor", "last_login")
    list_filter = ("operator_role",)
    search_fields = ("email", "name")
    fields = ("email", "operator_role", "has_second_factor", "last_login")
    readonly_fields = ("email", "has_second_factor", "last_login")
    actions = ("dismiss",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return who has a role."""
        return super().get_queryset(request).exclude(operator_role="")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody is made an operator without being asked."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Owners alone change what operators may do."""
        return super().has_add_permission(request)

    @admin.display(description="Second factor", boolean=True)
    def has_second_factor(self, row: Operator) -> bool:
        """Return whether one is set up; without it the admin stays closed."""
        return bool(is_mfa_enabled(row))

    def change_row(self, actor: Actor, row: Operator, changes: dict[str, Any]) -> Any:
        """Give an operator another role."""
        if "operator_role" not in changes:
            return row
        return change_operator_role(actor=actor, user=row, role=changes["operator_role"])

    @admin.action(description="Dismiss: the admin closes at once", permissions=["change"])
    def dismiss(self, request: HttpRequest, queryset: QuerySet[Operator]) -> None:
        """End the roles of the operators."""
        self.carry_out(
            request, queryset, "is no operator any more",
            lambda actor, row: remove_operator(actor=actor, user=row),
        )  # fmt: skip


@admin.register(OperatorInvitation)
class OperatorInvitationAdmin(OwnersAdmin):
    """Invitations that are open."""

    list_display = ("email", "role", "invited_by", "created_at", "expires_at")
    list_select_related = ("invited_by",)
    fields = ("email", "role")
    actions = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return those that are open."""
        return open_invitations()

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """What was sent is not changed; the list's action withdraws it."""
        return obj is None and super().has_change_permission(request)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> OperatorInvitation:
        """Invite."""
        return invite_operator(actor=actor, **values)[0]

    @admin.action(description="Withdraw", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[OperatorInvitation]) -> None:
        """Withdraw the invitations."""
        self.carry_out(
            request, queryset, "is withdrawn",
            lambda actor, row: revoke_operator_invitation(actor=actor, invitation=row),
        )  # fmt: skip
