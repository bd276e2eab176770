"""Queries about operators."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import QuerySet

from control.accounts.models import User
from control.audit.pseudonyms import NameDirectory
from control.operators.models import OperatorInvitation


def operators() -> QuerySet[User]:
    """Return the operators, by address."""
    return User.objects.exclude(operator_role="").order_by("email")


def open_invitations() -> QuerySet[OperatorInvitation]:
    """Return the invitations that are neither accepted nor revoked, newest first."""
    rows = OperatorInvitation.objects.filter(accepted_at__isnull=True, revoked_at__isnull=True)
    return rows.order_by("-created_at")


def open_invitation(digest: str, now: datetime) -> OperatorInvitation | None:
    """Return the invitation that can be accepted at `now`, with its row locked."""
    rows = open_invitations().select_for_update(no_key=True)
    return rows.filter(digest=digest, expires_at__gt=now).first()


class OperatorInvitationDirectory(NameDirectory):
    """Email addresses of people who were invited as operators."""

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the invited addresses by the invitations' ids."""
        ids = [reference for reference in references if reference.startswith("opinv_")]
        invitations = OperatorInvitation.objects
        rows = invitations.filter(id__in=ids) if ids else invitations.none()
        return dict(rows.values_list("id", "email"))
