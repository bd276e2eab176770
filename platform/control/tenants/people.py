"""Who is meant by an address or an id: what the audit asks (`control.audit.pseudonyms`)."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Q, QuerySet

from control.tenants.models import Invitation, OperatorInvitation, User


class UsersAndInvited:
    """Users, and people who were offered a seat or a role."""

    def references(self, emails: Iterable[str]) -> dict[str, str]:
        """Return the ids of the users with these addresses (lower case), by address."""
        return dict(User.objects.filter(email__in=list(emails)).values_list("email", "id"))

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the addresses of users and of who was invited, by id; erased ones are left out."""
        asked = list(references)
        invited = [each for each in asked if each.startswith("inv_")]
        users = User.objects.filter(id__in=asked, erased_at=None)
        found = dict(users.values_list("id", "email"))
        if invited:
            for table in (Invitation, OperatorInvitation):
                rows = table._default_manager.filter(id__in=invited)
                found |= dict(rows.values_list("id", "email"))
        return found

    def called(self, text: str) -> QuerySet[Any, str]:
        """Return the ids of users whose address or name holds a text."""
        is_called = Q(email__icontains=text) | Q(name__icontains=text)
        return User.objects.filter(is_called, erased_at=None).values_list("id", flat=True)
