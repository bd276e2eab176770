"""Queries about users and the addresses that they hold or held."""

from collections.abc import Iterable
from typing import Any

from allauth.account.models import EmailAddress
from django.db.models import Max, Q, QuerySet

from control.accounts.models import FormerAddress, User
from control.audit.pseudonyms import NameDirectory
from control.db.models import get_or_not_found


def user_by_email(email: str) -> User | None:
    """Return the user with an email address."""
    return User.objects.filter(email=email.lower()).first()


def locked_user(user_id: str) -> User:
    """Return a user with their row locked until the transaction ends. Raises ObjectNotFound."""
    return get_or_not_found(User.objects.select_for_update(no_key=True), "person", pk=user_id)


def has_verified_email(user: User) -> bool:
    """Return whether the user has verified an address."""
    return bool(user.emailaddress_set.filter(verified=True).exists())  # type: ignore[attr-defined]


def sent_to(person: User, address: str, time: str) -> Q:
    """Return the filter of rows that were sent to a person, by the lookups of a row's address and
    time: to an address that they proved or signed up with, while they held it."""
    emails = EmailAddress.objects.filter(user=person, verified=True).values_list("email", flat=True)
    present = {person.email, *(each.lower() for each in emails)}
    held = [(email, None) for email in sorted(present)]
    former = FormerAddress.objects.filter(user=person).values_list("email", "until")
    is_theirs = Q(pk__in=[])
    for email, until in (*held, *former):
        others = FormerAddress.objects.filter(email=email).exclude(user=person)
        others = others.filter(until__lte=until) if until else others
        since = others.aggregate(since=Max("until"))["since"]
        piece = Q(**{f"{address}__iexact": email})
        piece &= Q(**{f"{time}__gt": since}) if since else Q()
        is_theirs |= piece & (Q(**{f"{time}__lte": until}) if until else Q())
    return is_theirs


class UserDirectory(NameDirectory):
    """Email addresses of users."""

    def references(self, emails: Iterable[str]) -> dict[str, str]:
        """Return the ids of the users with these addresses (lower case), by address."""
        return dict(User.objects.filter(email__in=list(emails)).values_list("email", "id"))

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the users' addresses by id, without erased users."""
        users = User.objects.filter(id__in=list(references), erased_at=None)
        return dict(users.values_list("id", "email"))

    def search(self, text: str) -> QuerySet[Any, str]:
        """Return the ids of users whose address or name contains a text."""
        is_named = Q(email__icontains=text) | Q(name__icontains=text)
        return User.objects.filter(is_named, erased_at=None).values_list("id", flat=True)
