"""Organizations, which own all other data, with their projects, members and invitations."""

from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import EMAIL_MAX, NAME_MAX, User
from control.db.models import ID_MAX, InvitationState, invitation_state, new_id
from control.forms import REASON_MAX
from control.permissions import Role

ORIGIN_MAX = 200
REGION_MAX = 64
REGION_FORM = RegexValidator(r"^[a-z0-9-]+\Z", "A region has lower-case letters, digits and -.")
WEIGHT_MAX = 10**9
DEFAULT_CREDIT_LIMIT_NANOS = 1_000 * 10**9
"""$1,000: what a postpaid organization may owe until operators set another limit."""


def new_organization_id() -> str:
    return new_id("org")


def new_cache_salt_id() -> str:
    """Return a fresh salt for an organization's prefix cache; a new salt empties the cache."""
    return new_id("salt")


def new_project_id() -> str:
    return new_id("proj")


def new_membership_id() -> str:
    return new_id("mem")


def new_invitation_id() -> str:
    return new_id("inv")


class OrganizationStatus(models.TextChoices):
    """The status of an organization; keys work in an active one only."""

    ACTIVE = "active", _("Active")
    SUSPENDED = "suspended", _("Suspended")
    DELETED = "deleted", _("Deleted")


class BillingMode(models.TextChoices):
    """Whether an organization pays in advance or by invoice."""

    PREPAID = "prepaid", _("Prepaid")
    POSTPAID = "postpaid", _("Postpaid")


class Organization(models.Model):
    """A tenant. `spend_limit_nanos` is per UTC month; None means no limit. `credit_limit_nanos` is
    the usage, before tax, that it may owe while it is postpaid."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_organization_id)
    name = models.CharField(max_length=NAME_MAX)
    status = models.CharField(
        max_length=16, choices=OrganizationStatus, default=OrganizationStatus.ACTIVE
    )
    suspended_reason = models.CharField(max_length=REASON_MAX, blank=True)
    """Why it is suspended, as its members are told; empty while it is not."""
    billing_mode = models.CharField(max_length=16, choices=BillingMode, default=BillingMode.PREPAID)
    spend_limit_nanos = models.BigIntegerField(null=True, blank=True)
    credit_limit_nanos = models.BigIntegerField(
        default=DEFAULT_CREDIT_LIMIT_NANOS, db_default=DEFAULT_CREDIT_LIMIT_NANOS
    )
    weight = models.PositiveIntegerField(
        default=1, validators=[MaxValueValidator(WEIGHT_MAX)], help_text=_("Share of a busy pool.")
    )
    cache_salt_id = models.CharField(max_length=ID_MAX, default=new_cache_salt_id)
    idempotency_enabled = models.BooleanField(
        default=False, help_text=_("Keep responses for a day, to answer repeated requests.")
    )
    allowed_regions = ArrayField(
        models.CharField(max_length=REGION_MAX, validators=[REGION_FORM]),
        default=list,
        db_default=[],
        blank=True,
        help_text=_("Regions of fleets that may process its requests. Empty: any."),
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "organizations_organization"
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=OrganizationStatus.values),
                name="organization_status_is_known",
            ),
            models.CheckConstraint(
                condition=Q(billing_mode__in=BillingMode.values), name="billing_mode_is_known"
            ),
            models.CheckConstraint(
                condition=Q(spend_limit_nanos__isnull=True) | Q(spend_limit_nanos__gte=0),
                name="organization_limit_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(credit_limit_nanos__gte=0), name="credit_limit_not_negative"
            ),
            models.CheckConstraint(condition=Q(weight__gte=1), name="weight_is_positive"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_active(self) -> bool:
        """Whether the organization's keys work."""
        return self.status == OrganizationStatus.ACTIVE

    @property
    def debt_limit_nanos(self) -> int:
        """The most debt before tax: the credit limit of a postpaid organization, else 0."""
        return self.credit_limit_nanos if self.billing_mode == BillingMode.POSTPAID else 0


class Project(models.Model):
    """A workspace in an organization. Archiving ends its keys; restoring does not revive them."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_project_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="projects")
    name = models.CharField(max_length=NAME_MAX)
    spend_limit_nanos = models.BigIntegerField(null=True, blank=True)
    allowed_origins = ArrayField(
        models.CharField(max_length=ORIGIN_MAX),
        default=list,
        blank=True,
        help_text=_(
            "Origins whose pages may use the project's keys, such as https://app.example.com."
        ),
    )
    created_at = models.DateTimeField(default=timezone.now)
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "organizations_project"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"],
                name="project_name_is_unique",
                condition=Q(archived_at__isnull=True),
            ),
            models.CheckConstraint(
                condition=Q(spend_limit_nanos__isnull=True) | Q(spend_limit_nanos__gte=0),
                name="project_limit_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_archived(self) -> bool:
        return self.archived_at is not None


class Membership(models.Model):
    """A user's membership of an organization."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_membership_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "organizations_membership"
        constraints = [
            models.UniqueConstraint(fields=["organization", "user"], name="member_is_unique"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} as {self.role}"


class Invitation(models.Model):
    """A membership offered to an email address. The secret is emailed; its digest is stored."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_invitation_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="invitations")
    email = models.EmailField(max_length=EMAIL_MAX)
    role = models.CharField(max_length=16, choices=Role)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "organizations_invitation"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "email"],
                name="open_invitation_is_unique",
                condition=Q(accepted_at__isnull=True, revoked_at__isnull=True),
            ),
            models.CheckConstraint(
                condition=Q(role__in=Role.values), name="invitation_role_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email} as {self.role}"

    def state(self, now: datetime) -> InvitationState:
        """Return whether it can be accepted at `now`, and else why not."""
        return invitation_state(self, now)
