"""Grants, budgets and leases. Every writer of an organization's money first takes the row lock
of the organization's budget (`services.lock_budget`), so that no two decide on one balance."""

from django.db import models
from django.db.models import F, Q

from billing.ledger.models import Account
from control.ids import new_id as new_control_id
from serving.contract.ids import new_id


def new_grant_id() -> str:
    """Return a fresh id of a credit grant."""
    return new_control_id("grant")


class BudgetKind(models.TextChoices):
    """What a budget limits."""

    ORGANIZATION = "organization", "Organization"
    PROJECT = "project", "Project"
    KEY = "key", "API key"


class GrantKind(models.TextChoices):
    """Where the credit comes from: the operator's favour, or the customer's payment."""

    PROMOTIONAL = "promotional", "Promotional"
    PREPAID = "prepaid", "Prepaid"


class Budget(models.Model):
    """Something with a limit. Its id is the id of what it limits; the limit itself is control's
    row, or the balance. The row of an organization's budget is the lock on all its money."""

    id = models.CharField(primary_key=True, max_length=64)
    kind = models.CharField(max_length=16, choices=BudgetKind)
    organization_id = models.CharField(max_length=64)

    class Meta:
        db_table = "credit_budget"
        indexes = [models.Index(fields=["organization_id"], name="budget_by_org")]

    def __str__(self) -> str:
        return self.id


class Spend(models.Model):
    """What an organization, project or key was charged in one UTC month (`period` is its first
    day). The month is in the key, so nothing is ever set back to zero."""

    budget_id = models.CharField(max_length=64)
    period = models.DateField()
    organization_id = models.CharField(max_length=64)
    charged_nanos = models.BigIntegerField(default=0)

    class Meta:
        db_table = "credit_spend"
        constraints = [
            models.UniqueConstraint(fields=["budget_id", "period"], name="spend_is_unique"),
            models.CheckConstraint(condition=Q(charged_nanos__gte=0), name="spend_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.budget_id} {self.period}"


class Lease(models.Model):
    """Money of one budget set aside for one gateway: held, then settled or given back.

    `granted_nanos` never changes; `keep_nanos` is what the gateway still claims of it in all,
    settled included. A lease holds `keep - settled` until it is closed.
    """

    id = models.CharField(primary_key=True, max_length=64, default=new_id)
    ask_id = models.CharField(max_length=64, unique=True)
    budget = models.ForeignKey(Budget, models.PROTECT, related_name="leases")
    organization_id = models.CharField(max_length=64)
    gateway_id = models.CharField(max_length=64)
    granted_nanos = models.BigIntegerField()
    keep_nanos = models.BigIntegerField()
    settled_nanos = models.BigIntegerField(default=0)
    granted_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    recalled_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    voided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "credit_lease"
        constraints = [
            models.CheckConstraint(
                condition=Q(keep_nanos__gte=0, keep_nanos__lte=F("granted_nanos")),
                name="lease_keeps_within_grant",
            ),
            models.CheckConstraint(
                condition=Q(voided_at__isnull=True) | Q(closed_at__isnull=False),
                name="lease_voided_is_closed",
            ),
        ]
        indexes = [
            models.Index(
                fields=["budget"], name="lease_open_by_budget", condition=Q(closed_at__isnull=True)
            ),
            models.Index(
                fields=["expires_at"],
                name="lease_open_by_expiry",
                condition=Q(closed_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def held_nanos(self) -> int:
        """What is set aside and neither spent nor given back."""
        if self.closed_at is not None:
            return 0
        return max(self.keep_nanos - self.settled_nanos, 0)


class CreditGrant(models.Model):
    """Credit given to an organization. What is left of it is its ledger account's balance."""

    id = models.CharField(primary_key=True, max_length=64, default=new_grant_id)
    organization_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=16, choices=GrantKind)
    amount_nanos = models.BigIntegerField()
    account = models.OneToOneField(Account, models.PROTECT, related_name="grant")
    expires_at = models.DateTimeField(null=True, blank=True)
    expired_at = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=200)
    reason = models.CharField(max_length=200)
    granted_by = models.CharField(max_length=254)
    granted_at = models.DateTimeField()

    class Meta:
        db_table = "credit_grant"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "idempotency_key"], name="grant_is_made_once"
            ),
            models.CheckConstraint(condition=Q(amount_nanos__gt=0), name="grant_is_positive"),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def remaining_nanos(self) -> int:
        """What is left of the grant."""
        return self.account.credit_nanos
