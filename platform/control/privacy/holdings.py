"""Every table that names a user: what of it a copy tells, and what becomes of it when the person is
erased. A table that is missing here fails the suite, so that none is forgotten."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from django.apps import apps
from django.db.models import Model


class End(StrEnum):
    """What becomes of rows."""

    DELETED = "deleted"
    REFERENCE = "keeps the reference"
    """The row is somebody else's, such as an organization's key: it goes on naming the id."""
    BY_VERB = "ended by its own verb"


@dataclass(frozen=True, slots=True)
class Holding:
    """A table's field that names a user, the fields a copy tells, and the end of its rows."""

    table: str
    field: str
    told: tuple[str, ...]
    end: End

    @property
    def model(self) -> type[Model]:
        """The table."""
        return apps.get_model(self.table)


HOLDINGS = (
    Holding("account.EmailAddress", "user", ("email", "verified", "primary"), End.DELETED),
    Holding("mfa.Authenticator", "user", ("type", "created_at", "last_used_at"), End.DELETED),
    Holding(
        "usersessions.UserSession",
        "user",
        ("ip", "user_agent", "created_at", "last_seen_at"),
        End.DELETED,
    ),
    Holding(
        "tenants.Membership",
        "user",
        ("id", "organization_id", "organization__name", "role", "created_at"),
        End.BY_VERB,
    ),
    Holding(
        "tenants.Invitation",
        "invited_by",
        ("id", "organization_id", "role", "created_at", "accepted_at", "revoked_at"),
        End.REFERENCE,
    ),
    Holding(
        "tenants.OperatorInvitation",
        "invited_by",
        ("id", "role", "created_at", "accepted_at", "revoked_at"),
        End.REFERENCE,
    ),
    Holding(
        "keys.ApiKey",
        "created_by",
        (
            "id", "organization_id", "project_id", "name", "prefix", "last_four", "scopes",
            "created_at", "last_used_at", "expires_at", "revoked_at",
        ),
        End.REFERENCE,
    ),
    Holding(
        "keys.OldSecret",
        "made_by",
        ("id", "key_id", "prefix", "last_four", "ends_at"),
        End.REFERENCE,
    ),
    Holding(
        "sso.Identity",
        "user",
        ("organization_id", "subject", "created_at", "last_used_at"),
        End.DELETED,
    ),
    Holding(
        "sso.ScimUser",
        "user",
        (
            "id", "organization_id", "user_name", "external_id", "given_name", "family_name",
            "is_active", "created_at", "updated_at",
        ),
        End.DELETED,
    ),
    Holding("prices.PriceBook", "published_by", ("id", "name"), End.REFERENCE),
    Holding("prices.PriceBook", "cancelled_by", ("id", "name"), End.REFERENCE),
    Holding(
        "privacy.Errand",
        "person",
        ("id", "kind", "state", "created_at", "finished_at"),
        End.BY_VERB,
    ),
    Holding("privacy.Errand", "asked_by", ("id", "kind", "created_at"), End.REFERENCE),
    Holding("admin.LogEntry", "user", ("action_time", "action_flag"), End.DELETED),
    # Django's own, which nothing here fills: roles are a column.
    Holding("tenants.User_groups", "user", (), End.DELETED),
    Holding("tenants.User_user_permissions", "user", (), End.DELETED),
)  # fmt: skip


def holdings() -> Iterator[Holding]:
    """Return those whose app is installed."""
    return (each for each in HOLDINGS if each.table.partition(".")[0] in apps.app_configs)
