"""What is kept about a person: every table that names a user, what of it an export holds, and what
becomes of it when the person is erased. A table that is missing here fails the suite."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.apps import apps
from django.contrib.sessions.models import Session
from django.db.models import Model, Q, QuerySet

from control.accounts.models import User
from control.mail.models import StoredEmail
from control.mail.services import KIND as MAIL
from control.operators.models import OperatorInvitation
from control.organizations.models import Invitation
from control.outbox.models import OutboxMessage


class RetentionRule(StrEnum):
    """What becomes of rows."""

    DELETED = "deleted"
    REFERENCE = "keeps the reference"
    """The row is somebody else's, such as an organization's key: it goes on naming the id."""
    BY_VERB = "ended by its own verb"


@dataclass(frozen=True, slots=True)
class StoredData:
    """A table's field that names a user, the fields a copy tells, and the end of its rows."""

    table: str
    field: str
    told: tuple[str, ...]
    end: RetentionRule

    @property
    def model(self) -> type[Model]:
        """The table."""
        return apps.get_model(self.table)


STORED_DATA = (
    StoredData(
        "account.EmailAddress", "user", ("email", "verified", "primary"), RetentionRule.DELETED
    ),
    StoredData(
        "mfa.Authenticator", "user", ("type", "created_at", "last_used_at"), RetentionRule.DELETED
    ),
    StoredData(
        "usersessions.UserSession",
        "user",
        ("ip", "user_agent", "created_at", "last_seen_at"),
        RetentionRule.DELETED,
    ),
    StoredData(
        "organizations.Membership",
        "user",
        ("id", "organization_id", "organization__name", "role", "created_at"),
        RetentionRule.BY_VERB,
    ),
    StoredData(
        "organizations.Invitation",
        "invited_by",
        ("id", "organization_id", "role", "created_at", "accepted_at", "revoked_at"),
        RetentionRule.REFERENCE,
    ),
    StoredData(
        "operators.OperatorInvitation",
        "invited_by",
        ("id", "role", "created_at", "accepted_at", "revoked_at"),
        RetentionRule.REFERENCE,
    ),
    StoredData(
        "api_keys.ApiKey",
        "created_by",
        (
            "id", "organization_id", "project_id", "name", "prefix", "last_four", "scopes",
            "created_at", "last_used_at", "expires_at", "revoked_at",
        ),
        RetentionRule.REFERENCE,
    ),
    StoredData(
        "api_keys.PreviousSecret",
        "made_by",
        ("id", "key_id", "prefix", "last_four", "ends_at"),
        RetentionRule.REFERENCE,
    ),
    StoredData(
        "sso.SsoIdentity",
        "user",
        ("organization_id", "subject", "created_at", "last_used_at"),
        RetentionRule.DELETED,
    ),
    StoredData(
        "sso.ScimUser",
        "user",
        (
            "id", "organization_id", "user_name", "external_id", "given_name", "family_name",
            "is_active", "created_at", "updated_at",
        ),
        RetentionRule.DELETED,
    ),
    StoredData("pricing.PriceBook", "published_by", ("id", "name"), RetentionRule.REFERENCE),
    StoredData("pricing.PriceBook", "cancelled_by", ("id", "name"), RetentionRule.REFERENCE),
    StoredData(
        "data_requests.DataSubjectRequest",
        "person",
        ("id", "kind", "state", "created_at", "finished_at"),
        RetentionRule.BY_VERB,
    ),
    StoredData(
        "data_requests.DataSubjectRequest",
        "asked_by",
        ("id", "kind", "created_at"),
        RetentionRule.REFERENCE,
    ),
    StoredData("admin.LogEntry", "user", ("action_time", "action_flag"), RetentionRule.DELETED),
    # Django's own, which nothing here fills: roles are a column.
    StoredData("accounts.User_groups", "user", (), RetentionRule.DELETED),
    StoredData("accounts.User_user_permissions", "user", (), RetentionRule.DELETED),
)  # fmt: skip


def inventory() -> Iterator[StoredData]:
    """Return those whose app is installed."""
    return (each for each in STORED_DATA if each.table.partition(".")[0] in apps.app_configs)


def addresses(person: User) -> set[str]:
    """Return every address of a person, in lower case."""
    return {person.email.lower(), *(each.lower() for each in _email_addresses(person))}


def _email_addresses(person: User) -> list[str]:
    return list(person.emailaddress_set.values_list("email", flat=True))  # type: ignore[attr-defined]


def sessions(person: User, now: datetime) -> list[Session]:
    """Return the sessions of a person that are open. All open ones are read: a session names nobody
    outside its sealed data."""
    alive = Session.objects.filter(expire_date__gt=now).iterator()
    return [each for each in alive if each.get_decoded().get("_auth_user_id") == person.id]


def invitations(person: User) -> list[QuerySet[Invitation] | QuerySet[OperatorInvitation]]:
    """Return what was offered to a person's addresses."""
    theirs = Q(email__in=addresses(person))
    return [Invitation.objects.filter(theirs), OperatorInvitation.objects.filter(theirs)]


def outbox_mails(person: User) -> QuerySet[OutboxMessage]:
    """Return the mails to a person that wait, or are kept for a while after they left."""
    theirs = Q()
    for each in addresses(person):
        theirs |= Q(payload__to__iexact=each)
    return OutboxMessage.objects.filter(theirs, kind=MAIL)


def stored_emails(person: User) -> QuerySet[StoredEmail]:
    """Return the mails to a person that stayed in the platform's own mailbox."""
    theirs = Q()
    for each in addresses(person):
        theirs |= Q(sent_to__iexact=each)
    return StoredEmail.objects.filter(theirs)
