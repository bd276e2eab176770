"""May this be spent? Budgets with their three figures, leases that gateways hold on them, and the
grants that fund a balance. Figures move only through the functions of sql/, each
of which locks budgets by id, then leases by id, and computes from what it locked."""

from datetime import datetime

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from billing.ledger.models import Account
from control.db.models import append_only
from control.db.models import new_id as new_control_id

ID_MAX = 64


def new_grant_id() -> str:
    """Return a fresh id of a credit grant."""
    return new_control_id("grant")


def new_payment_id() -> str:
    """Return a fresh id of a payment."""
    return new_control_id("pay")


class BudgetKind(models.TextChoices):
    """What a budget limits: all that an organization may spend, or what it, a project or a key
    may spend in a period."""

    BALANCE = "balance", _("Balance")
    ORGANIZATION = "organization", _("Organization")
    PROJECT = "project", _("Project")
    KEY = "key", _("API key")


class Period(models.TextChoices):
    """How long a budget's periods are, all of UTC; weeks begin on Monday."""

    LIFETIME = "lifetime", _("Lifetime")
    MONTH = "month", _("Monthly")
    WEEK = "week", _("Weekly")
    DAY = "day", _("Daily")


FINE = (Period.WEEK, Period.DAY)
"""Rows of these periods are made only where a limit is set; those of months for all in use."""


class GrantKind(models.TextChoices):
    """Where the credit comes from: the operator's favour, or the customer's payment."""

    PROMOTIONAL = "promotional", _("Promotional")
    PREPAID = "prepaid", _("Prepaid")


class Budget(models.Model):
    """One thing limited in one period: posted + pending + a new grant never exceeds the limit.

    `posted_nanos` is what was charged, `pending_nanos` what open leases hold, a limit of None is
    none. A balance has one period, from 1970 without end; what was paid and granted, less what
    expired or was refunded, is `funded_nanos`, and the balance shown is funded less posted. Its
    limit is funded and credit limit, which is 0 of who is prepaid, or funded alone while the credit
    limit is suspended.
    """

    budget_id = models.CharField(max_length=ID_MAX, db_collation="C")
    kind = models.CharField(max_length=16, choices=BudgetKind)
    period = models.CharField(max_length=16, choices=Period, db_default=Period.MONTH)
    organization_id = models.CharField(max_length=ID_MAX)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    limit_nanos = models.BigIntegerField(null=True, blank=True)
    posted_nanos = models.BigIntegerField(default=0)
    pending_nanos = models.BigIntegerField(default=0)
    funded_nanos = models.BigIntegerField(default=0)
    credit_limit_nanos = models.BigIntegerField(default=0, db_default=0)
    is_credit_limit_suspended = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "credit_budget"
        constraints = [
            models.UniqueConstraint(fields=["budget_id", "starts_at"], name="budget_is_unique"),
            models.CheckConstraint(
                condition=Q(posted_nanos__gte=0, pending_nanos__gte=0), name="budget_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(kind="balance", ends_at__isnull=True)
                | ~Q(kind="balance") & Q(ends_at__isnull=False, funded_nanos=0),
                name="budget_has_its_period",
            ),
            models.CheckConstraint(
                condition=Q(kind="balance", period="lifetime")
                | ~Q(kind="balance") & Q(period__in=["month", *FINE]),
                name="budget_period_is_known",
            ),
            models.CheckConstraint(
                condition=Q(credit_limit_nanos__gte=0)
                & (Q(kind="balance") | Q(credit_limit_nanos=0, is_credit_limit_suspended=False)),
                name="budget_credit_limit_is_a_balances",
            ),
        ]
        indexes = [
            models.Index(fields=["organization_id"], name="budget_by_organization"),
            models.Index(
                fields=["organization_id"],
                name="budget_fine_by_organization",
                condition=Q(period__in=FINE),
            ),
            models.Index(
                fields=["organization_id"],
                name="budget_balance_by_organization",
                condition=Q(kind="balance"),
            ),
            models.Index(
                fields=["starts_at"],
                name="budget_limited_by_period",
                condition=Q(limit_nanos__isnull=False) & ~Q(period="lifetime"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.budget_id} {self.starts_at:%Y-%m-%d}"

    @property
    def balance_nanos(self) -> int:
        """What a balance shows: funded less charged; below zero it is a debt."""
        return self.funded_nanos - self.posted_nanos

    @property
    def available_nanos(self) -> int | None:
        """What may still be granted, below zero after late facts; None without a limit."""
        if self.limit_nanos is None:
            return None
        return self.limit_nanos - self.posted_nanos - self.pending_nanos


class Lease(models.Model):
    """Money of one budget set aside for one gateway: held, then settled or given back.

    `granted_nanos` never changes; `keep_nanos` is what the gateway still claims of it in all,
    `settled_nanos` what its events took. A stopped lease admits nothing more; a closed one
    expects no event.
    """

    ask_id = models.CharField(max_length=ID_MAX)
    # Open leases alone are looked for by their budget, and no budget is ever deleted.
    budget = models.ForeignKey(Budget, models.PROTECT, related_name="leases", db_index=False)
    organization_id = models.CharField(max_length=ID_MAX)
    gateway_id = models.CharField(max_length=ID_MAX)
    granted_nanos = models.BigIntegerField()
    keep_nanos = models.BigIntegerField()
    settled_nanos = models.BigIntegerField(default=0)
    granted_at = models.DateTimeField()
    admits_from = models.DateTimeField()
    admits_until = models.DateTimeField()
    recalled_at = models.DateTimeField(null=True, blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    voided_at = models.DateTimeField(null=True, blank=True)
    lineage = models.CharField(max_length=16)
    """Of the database that granted it: a restored one ends the leases of the one before."""
    overrun_seen_at = models.DateTimeField(null=True, blank=True)
    """When an operator acknowledged that more was settled than granted."""

    class Meta:
        db_table = "credit_lease"
        constraints = [
            models.UniqueConstraint(fields=["ask_id"], name="lease_is_granted_once"),
            models.CheckConstraint(
                condition=Q(keep_nanos__gte=0, keep_nanos__lte=F("granted_nanos"))
                & Q(settled_nanos__gte=0),
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
                fields=["gateway_id"],
                name="lease_recalled_by_gateway",
                condition=Q(closed_at__isnull=True, recalled_at__isnull=False),
            ),
            models.Index(
                fields=["admits_until"],
                name="lease_open_by_end",
                condition=Q(closed_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.wire_id

    @property
    def wire_id(self) -> str:
        """What gateways call it: no lease of another lineage has the name."""
        return f"{self.lineage}.{self.pk}"

    @property
    def held_nanos(self) -> int:
        """What is set aside and neither spent nor given back."""
        if self.closed_at is not None:
            return 0
        return max(self.keep_nanos - self.settled_nanos, 0)


class GrantState(models.TextChoices):
    """Whether credit may be spent."""

    ACTIVE = "active", _("Active")
    USED = "used", _("Used")
    EXPIRED = "expired", _("Expired")
    REVERSED = "reversed", _("Reversed")


class CreditGrant(models.Model):
    """Credit given to an organization. What is left of it is its ledger account's balance.

    `expired_nanos` is what expiry took of it so far, less what late usage took back; a grant is
    closed (`closed_at`) once nothing more can change it but late usage.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_grant_id)
    organization_id = models.CharField(max_length=ID_MAX)
    kind = models.CharField(max_length=16, choices=GrantKind)
    amount_nanos = models.BigIntegerField()
    account = models.OneToOneField(Account, models.PROTECT, related_name="grant")
    expires_at = models.DateTimeField(null=True, blank=True)
    expired_nanos = models.BigIntegerField(default=0)
    closed_at = models.DateTimeField(null=True, blank=True)
    reversed_at = models.DateTimeField(null=True, blank=True)
    has_remaining = models.BooleanField(db_default=True, editable=False)
    """Whether its account holds anything, kept by the database (sql/remaining.sql): usage looks for
    credit among those that do, however many were used up."""
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
            models.CheckConstraint(
                condition=Q(amount_nanos__gt=0, expired_nanos__gte=0)
                & Q(expired_nanos__lte=F("amount_nanos")),
                name="grant_is_positive",
            ),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"],
                name="grant_open_by_expiry",
                condition=Q(closed_at__isnull=True),
            ),
            models.Index(
                fields=["expires_at"],
                name="grant_by_expiry",
                include=["organization_id"],
                condition=Q(reversed_at__isnull=True),
            ),
            models.Index(
                fields=["organization_id"],
                name="grant_with_remaining",
                condition=Q(reversed_at__isnull=True, has_remaining=True),
            ),
            models.Index(
                fields=["organization_id", "expires_at"],
                name="grant_expired",
                condition=Q(reversed_at__isnull=True, expired_nanos__gt=0),
            ),
        ]

    def __str__(self) -> str:
        return self.id

    def state(self, now: datetime, remaining_nanos: int | None = None) -> GrantState:
        """Return whether it may be spent at `now`, and else why not. `remaining_nanos` is what is
        left of it, by the ledger unless the caller knows better."""
        left_nanos = self.remaining_nanos if remaining_nanos is None else remaining_nanos
        if self.reversed_at is not None:
            return GrantState.REVERSED
        if left_nanos == 0 and self.expired_nanos == 0:
            return GrantState.USED
        if self.expires_at is not None and self.expires_at <= now:
            return GrantState.EXPIRED
        return GrantState.ACTIVE

    @property
    def remaining_nanos(self) -> int:
        """What is left of the grant in the ledger: usage not yet posted is not drawn from it."""
        return self.account.credit_nanos


class Payment(models.Model):
    """Money received: it settles the debt first, what is left becomes a prepaid grant.

    `tax_nanos` is part of the amount and never credit.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_payment_id)
    organization_id = models.CharField(max_length=ID_MAX)
    amount_nanos = models.BigIntegerField()
    tax_nanos = models.BigIntegerField(default=0)
    settled_nanos = models.BigIntegerField()
    grant = models.OneToOneField(CreditGrant, models.PROTECT, null=True, related_name="payment")
    idempotency_key = models.CharField(max_length=200)
    reason = models.CharField(max_length=200)
    recorded_by = models.CharField(max_length=254)
    received_at = models.DateTimeField()

    class Meta:
        db_table = "credit_payment"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "idempotency_key"], name="payment_is_made_once"
            ),
            models.CheckConstraint(
                condition=Q(amount_nanos__gt=0, tax_nanos__gte=0, settled_nanos__gte=0)
                & Q(tax_nanos__lt=F("amount_nanos")),
                name="payment_is_positive",
            ),
        ]
        triggers = append_only("payment")

    def __str__(self) -> str:
        return self.id


class UnpostedUsage(models.Model):
    """Charges that the postings follower has read and the ledger does not hold yet.

    Summed by the day they are accounted on and by the soonest expiry of credit after they were
    received (`received_before`; None where there is none): that tells which credit they may draw.
    """

    organization_id = models.CharField(max_length=ID_MAX)
    accounted_on = models.DateField()
    received_before = models.DateTimeField(null=True)
    nanos = models.BigIntegerField()

    class Meta:
        db_table = "credit_unposted_usage"
        verbose_name_plural = "unposted usage"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "accounted_on", "received_before"],
                name="unposted_usage_is_unique",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return f"{self.organization_id} {self.accounted_on}: {self.nanos}"


class Welcome(models.Model):
    """A person who had the welcome credit: once, however many organizations they make."""

    user_id = models.CharField(primary_key=True, max_length=ID_MAX)
    grant = models.OneToOneField(CreditGrant, models.PROTECT)
    given_at = models.DateTimeField()

    class Meta:
        db_table = "credit_welcome"
        triggers = append_only("welcome")

    def __str__(self) -> str:
        return self.user_id
