"""The inventory of personal data: every table that refers to a user, the columns that an export
holds, and what an erasure does with its rows. Tests fail for a table that is missing here."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from allauth.account.models import EmailAddress
from django.apps import apps
from django.contrib.sessions.models import Session
from django.db.models import Max, Model, Q, QuerySet

from control.accounts.models import FormerAddress, User
from control.mail.delivery import message_id
from control.mail.models import StoredEmail
from control.mail.services import KIND as MAIL
from control.operators.models import OperatorInvitation
from control.organizations.models import Invitation
from control.outbox.models import OutboxMessage


class RetentionRule(StrEnum):
    """The ways in which an erasure treats rows."""

    DELETED = "deleted"
    REFERENCE = "keeps the reference"
    """The row belongs to another object, such as an organization's key, and keeps the user's id."""
    BY_VERB = "ended by its own verb"


@dataclass(frozen=True, slots=True)
class StoredData:
    """A table's column that refers to a user, the columns exported, and what an erasure does."""

    table: str
    field: str
    told: tuple[str, ...]
    end: RetentionRule

    @property
    def model(self) -> type[Model]:
        """The table's model."""
        return apps.get_model(self.table)


STORED_DATA = (
    StoredData(
        "account.EmailAddress", "user", ("email", "verified", "primary"), RetentionRule.DELETED
    ),
    # After the addresses: deleting them adds rows here.
    StoredData("accounts.FormerAddress", "user", ("email", "until"), RetentionRule.DELETED),
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
        "operators.OperatorToken",
        "created_by",
        (
            "id", "name", "prefix", "last_four", "permissions", "created_at", "last_used_at",
            "expires_at", "revoked_at",
        ),
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
    StoredData(
        "sso.RemovedScimUser",
        "user",
        ("organization_id", "external_id", "removed_at"),
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
    # Django's own tables, which stay empty: roles are a column.
    StoredData("accounts.User_groups", "user", (), RetentionRule.DELETED),
    StoredData("accounts.User_user_permissions", "user", (), RetentionRule.DELETED),
)  # fmt: skip


def inventory() -> Iterator[StoredData]:
    """Return the tables whose app is installed."""
    return (each for each in STORED_DATA if each.table.partition(".")[0] in apps.app_configs)


def sessions(person: User, now: datetime) -> list[Session]:
    """Return a person's open sessions. It reads all open sessions: only their encoded data names
    the user."""
    open_sessions = Session.objects.filter(expire_date__gt=now).iterator()
    return [each for each in open_sessions if each.get_decoded().get("_auth_user_id") == person.id]


def invitations(person: User) -> list[QuerySet[Invitation] | QuerySet[OperatorInvitation]]:
    """Return the organization and operator invitations to a person's addresses."""
    is_theirs = _sent_to(person, "email", "created_at")
    return [Invitation.objects.filter(is_theirs), OperatorInvitation.objects.filter(is_theirs)]


def outbox_mails(person: User) -> QuerySet[OutboxMessage]:
    """Return the emails to a person that are pending, or kept for a while after delivery."""
    return OutboxMessage.objects.filter(_sent_to(person, "payload__to", "created_at"), kind=MAIL)


def stored_emails(person: User) -> QuerySet[StoredEmail]:
    """Return the emails to a person in the platform's own mailbox."""
    ids = [message_id(each.kind, each.key) for each in outbox_mails(person).only("kind", "key")]
    return StoredEmail.objects.filter(message_id__in=ids)


def _sent_to(person: User, address: str, time: str) -> Q:
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
