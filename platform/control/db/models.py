"""Parts of models: random ids with a prefix, triggers for append-only tables, the lookup of a row
that may not exist, and the states of rows that expire and can be revoked, in Python and as
a query."""

import secrets
import string
from datetime import datetime
from typing import Any, Protocol, TypeVar

import pgtrigger
from django.db import models
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from control.errors import ObjectNotFound
from serving.contract.api_key import BASE62

Row = TypeVar("Row", bound=Model)

ID_MAX = 64
RANDOM_CHARACTERS = 24
REFUSE_TRUNCATE = """
RAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
"""


def new_id(prefix: str) -> str:
    """Return a fresh id such as `org_fK4…`: 142 random bits, so that nobody guesses another's.

    They begin with a letter: the admin would take `_3F` in an address for a quoted `?`, so an id
    that somebody puts into one by hand might not be found.
    """
    first = secrets.choice(string.ascii_letters)
    rest = "".join(secrets.choice(BASE62) for _ in range(RANDOM_CHARACTERS - 1))
    return f"{prefix}_{first}{rest}"


def append_only(name: str) -> list[pgtrigger.Trigger]:
    """Return the triggers that refuse UPDATE, DELETE and TRUNCATE, even to the tables' owner."""
    stays = pgtrigger.Protect(name=f"{name}_stays", operation=pgtrigger.Update | pgtrigger.Delete)
    return [stays, no_truncate(name)]


def no_truncate(name: str) -> pgtrigger.Trigger:
    """Return the trigger that refuses TRUNCATE."""
    return pgtrigger.Trigger(
        name=f"{name}_all_stay",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func=REFUSE_TRUNCATE,
    )


def get_or_not_found(rows: QuerySet[Row], what: str, **lookup: Any) -> Row:
    """Return the row that a lookup finds, such as a "price book" by `id`. Raises ObjectNotFound."""
    found = rows.filter(**lookup).first()
    if found is None:
        raise ObjectNotFound(f"There is no such {what}.")
    return found


class CredentialState(models.TextChoices):
    """Whether a credential authenticates."""

    ACTIVE = "active", _("Active")
    EXPIRED = "expired", _("Expired")
    REVOKED = "revoked", _("Revoked")


class InvitationState(models.TextChoices):
    """Whether an invitation can be accepted."""

    OPEN = "open", _("Open")
    EXPIRED = "expired", _("Expired")
    USED = "used", _("Used")
    WITHDRAWN = "withdrawn", _("Withdrawn")


class Credential(Protocol):
    """A row that ends when it expires or is revoked, whichever is first."""

    @property
    def expires_at(self) -> datetime | None:
        """When it expires; None for never."""

    @property
    def revoked_at(self) -> datetime | None:
        """When it was revoked."""


class AcceptableOnce(Credential, Protocol):
    """An invitation."""

    @property
    def accepted_at(self) -> datetime | None:
        """When it was accepted."""


def credential_state(row: Credential, now: datetime) -> CredentialState:
    """Return the state of a credential at `now`."""
    if row.revoked_at is not None:
        return CredentialState.REVOKED
    if row.expires_at is not None and row.expires_at <= now:
        return CredentialState.EXPIRED
    return CredentialState.ACTIVE


def credentials_in(state: CredentialState, now: datetime) -> Q:
    """Return the condition of a state, as `credential_state` tells it."""
    is_revoked, is_expired = Q(revoked_at__isnull=False), Q(expires_at__lte=now)
    match state:
        case CredentialState.REVOKED:
            return is_revoked
        case CredentialState.EXPIRED:
            return ~is_revoked & is_expired
    return ~is_revoked & (Q(expires_at__isnull=True) | Q(expires_at__gt=now))


def invitation_state(row: AcceptableOnce, now: datetime) -> InvitationState:
    """Return the state of an invitation at `now`."""
    if row.accepted_at is not None:
        return InvitationState.USED
    match credential_state(row, now):
        case CredentialState.REVOKED:
            return InvitationState.WITHDRAWN
        case CredentialState.EXPIRED:
            return InvitationState.EXPIRED
    return InvitationState.OPEN
