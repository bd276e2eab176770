"""Questions about operators."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import QuerySet

from control.accounts.models import User
from control.audit.pseudonyms import NameDirectory
from control.operators.models import OperatorInvitation


def operators() -> QuerySet[User]:
    """Return who runs the platform, by address."""
    return User.objects.exclude(operator_role="").order_by("email")


def open_invitations() -> QuerySet[OperatorInvitation]:
    """Return the invitations of operators that are neither accepted nor revoked, newest first."""
    rows = OperatorInvitation.objects.filter(accepted_at__isnull=True, revoked_at__isnull=True)
    return rows.order_by("-created_at")


def open_invitation(digest: str, now: datetime) -> OperatorInvitation | None:
    """Return the invitation that a secret opens at `now`, its row locked."""
    rows = open_invitations().select_for_update(no_key=True)
    return rows.filter(digest=digest, expires_at__gt=now).first()


class OperatorInvitationDirectory(NameDirectory):
    """People who were invited to run the platform."""

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the invited addresses by the invitations' ids."""
        asked = [each for each in references if each.startswith("opinv_")]
        rows = OperatorInvitation.objects
        found = rows.filter(id__in=asked) if asked else rows.none()
        return dict(found.values_list("id", "email"))
