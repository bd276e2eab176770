"""The states of rows that expire and can be revoked: one rule each, in Python and as a query."""

from datetime import datetime
from typing import Protocol

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


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
