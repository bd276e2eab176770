"""Queries about operators."""

from collections.abc import Collection, Iterable
from datetime import datetime

from django.db.models import QuerySet

from control.accounts.models import User
from control.audit.pseudonyms import NameDirectory
from control.db.models import CredentialState
from control.operators.models import OperatorInvitation, OperatorToken
from control.permissions import OPERATOR_PERMISSIONS, Permission, operator_can


def operators() -> QuerySet[User]:
    """Return the operators, by address."""
    return User.objects.exclude(operator_role="").order_by("email")


def finance_addresses() -> list[str]:
    """Return the addresses of the operators who may keep the books."""
    roles = [role for role in OPERATOR_PERMISSIONS if operator_can(role, Permission.FINANCE_WRITE)]
    rows = operators().filter(operator_role__in=roles, is_active=True)
    return list(rows.values_list("email", flat=True))


def open_invitations() -> QuerySet[OperatorInvitation]:
    """Return the invitations that are neither accepted nor revoked, newest first."""
    rows = OperatorInvitation.objects.filter(accepted_at__isnull=True, revoked_at__isnull=True)
    return rows.order_by("-created_at")


def invitation_by_digest(digest: str) -> OperatorInvitation | None:
    """Return the invitation, in any state, that a secret with this digest belongs to."""
    rows = OperatorInvitation.objects.select_related("invited_by")
    return rows.filter(digest=digest).first()


def locked_invitation(invitation_id: str) -> OperatorInvitation:
    """Return any invitation with its row locked until the transaction ends."""
    return OperatorInvitation.objects.select_for_update(no_key=True).get(id=invitation_id)


def tokens(user: User | None = None) -> QuerySet[OperatorToken]:
    """Return the tokens that an operator created, or those of all, newest first."""
    rows = OperatorToken.objects.select_related("created_by").order_by("-created_at", "id")
    return rows if user is None else rows.filter(created_by=user)


def token_by_digests(digests: Collection[str], now: datetime) -> OperatorToken | None:
    """Return the token with one of these digests that can be used at `now`: it is neither revoked
    nor expired, and its creator is still an operator."""
    found = tokens().filter(digest__in=digests).first()
    if found is None or found.state(now) != CredentialState.ACTIVE:
        return None
    creator = found.created_by
    return found if creator.is_active and creator.operator_role else None


class OperatorInvitationDirectory(NameDirectory):
    """Email addresses of people who were invited as operators."""

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the invited addresses by the invitations' ids."""
        ids = [reference for reference in references if reference.startswith("opinv_")]
        invitations = OperatorInvitation.objects
        rows = invitations.filter(id__in=ids) if ids else invitations.none()
        return dict(rows.values_list("id", "email"))
