"""Operators, the users who run the platform, and their invitations."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from control.accounts.models import EMAIL_MAX, OPERATOR_ROLE_CHOICES, OPERATOR_ROLES, User
from control.db.models import ID_MAX, new_id


def new_operator_invitation_id() -> str:
    """Return a fresh id of an operator invitation."""
    return new_id("opinv")


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
