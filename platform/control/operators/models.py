"""Operators, the users who run the platform, their invitations, and the tokens of their scripts."""

from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import (
    EMAIL_MAX,
    NAME_MAX,
    OPERATOR_ROLE_CHOICES,
    OPERATOR_ROLES,
    User,
)
from control.db.models import (
    ID_MAX,
    CredentialState,
    InvitationState,
    credential_state,
    invitation_state,
    new_id,
)
from control.permissions import OPERATOR_PERMISSIONS, OperatorRole, Permission

TOKEN_PERMISSIONS = [
    each for each in Permission if each in OPERATOR_PERMISSIONS[OperatorRole.OWNER]
]
"""The permissions that a token may have."""


def new_operator_invitation_id() -> str:
    return new_id("opinv")


def new_operator_token_id() -> str:
    return new_id("optok")


class Operator(User):
    """Proxy of a user for the admin's list of operators."""

    class Meta:
        proxy = True

    def __str__(self) -> str:
        return self.email


class OperatorInvitation(models.Model):
    """A role offered to an email address. The secret is emailed; only its digest is stored."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_operator_invitation_id)
    email = models.EmailField(max_length=EMAIL_MAX)
    role = models.CharField(max_length=16, choices=OPERATOR_ROLE_CHOICES)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "operators_invitation"
        constraints = [
            models.UniqueConstraint(
                fields=["email"],
                name="open_operator_invitation_is_unique",
                condition=Q(accepted_at__isnull=True, revoked_at__isnull=True),
            ),
            models.CheckConstraint(
                condition=Q(role__in=OPERATOR_ROLES), name="operator_invitation_role_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email} as {self.role}"

    def state(self, now: datetime) -> InvitationState:
        """Return whether it can be accepted at `now`, and else why not."""
        return invitation_state(self, now)


class OperatorToken(models.Model):
    """A credential of the operators' API, which acts as the operator who created it, with the
    permissions that both the token and the operator's present role have. Only the digest of its
    secret is stored."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_operator_token_id)
    name = models.CharField(max_length=NAME_MAX)
    permissions = ArrayField(
        models.CharField(
            max_length=32, choices=[(each.value, each.value) for each in TOKEN_PERMISSIONS]
        )
    )
    digest = models.CharField(max_length=64, unique=True)
    pepper_id = models.CharField(max_length=8)
    prefix = models.CharField(max_length=16)
    last_four = models.CharField(max_length=4)
    created_by = models.ForeignKey(User, models.PROTECT, related_name="operator_tokens")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True, help_text=_("UTC. Empty: never."))
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "operators_token"
        constraints = [
            models.CheckConstraint(
                condition=Q(permissions__len__gte=1), name="operator_token_has_a_permission"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.masked})"

    @property
    def masked(self) -> str:
        """The part of the secret that may be shown."""
        return f"{self.prefix}…{self.last_four}"

    def state(self, now: datetime) -> CredentialState:
        """Return whether the token works at `now`, and else why not."""
        return credential_state(self, now)
