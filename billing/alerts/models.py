"""What customers want to be told of, the figures it is judged by, and what they were told."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

ID_MAX = 64
BUDGET_ID_MAX = 80


class AlertKind(models.TextChoices):
    """What happened, as webhooks call it."""

    REACHED = "spending_limit.reached", _("Spending limit reached")
    LOW = "balance.low", _("Balance low")
    UNUSUAL = "spending.unusual", _("Unusual spending")
    EXPIRING = "credit.expiring", _("Credit expires soon")


class Thresholds(models.Model):
    """The percentages of a budget that are told, other than the usual ones. Of a balance they are
    percentages of the credit limit."""

    budget_id = models.CharField(max_length=BUDGET_ID_MAX, primary_key=True, db_collation="C")
    organization_id = models.CharField(max_length=ID_MAX)
    percents = ArrayField(models.PositiveSmallIntegerField())

    class Meta:
        db_table = "alerts_thresholds"
        verbose_name_plural = "thresholds"
        constraints = [
            models.CheckConstraint(condition=Q(percents__len__lte=10), name="thresholds_are_few")
        ]

    def __str__(self) -> str:
        return self.budget_id


class AlertSettings(models.Model):
    """When an organization wants to hear of its balance and its spending; without a row, as the
    defaults say. None turns one off."""

    organization_id = models.CharField(max_length=ID_MAX, primary_key=True)
    low_balance_nanos = models.BigIntegerField(null=True, blank=True)
    low_runway_days = models.PositiveSmallIntegerField(null=True, blank=True)
    unusual_factor = models.PositiveSmallIntegerField(null=True, blank=True)

    class Meta:
        db_table = "alerts_settings"
        verbose_name_plural = "alert settings"
        constraints = [
            models.CheckConstraint(
                condition=(Q(low_balance_nanos__isnull=True) | Q(low_balance_nanos__gt=0))
                & (Q(low_runway_days__isnull=True) | Q(low_runway_days__range=(1, 365)))
                & (Q(unusual_factor__isnull=True) | Q(unusual_factor__range=(2, 100))),
                name="alert_settings_are_sane",
            )
        ]

    def __str__(self) -> str:
        return self.organization_id


class DaySpend(models.Model):
    """What an organization was charged for a UTC day's requests, and for its busiest clock hour."""

    organization_id = models.CharField(max_length=ID_MAX)
    day = models.DateField()
    nanos = models.BigIntegerField()
    busiest_hour_nanos = models.BigIntegerField()

    class Meta:
        db_table = "alerts_day_spend"
        constraints = [
            models.UniqueConstraint(fields=["day", "organization_id"], name="day_spend_is_unique")
        ]
        indexes = [models.Index(fields=["organization_id", "day"], name="day_spend_by_org")]

    def __str__(self) -> str:
        return f"{self.organization_id} {self.day}"


class Alert(models.Model):
    """What was told once: a rule of a budget in one of its periods. Rules of what has no end (the
    balance, the credit limit) are told again only after `ended_at`, when they ceased to hold."""

    organization_id = models.CharField(max_length=ID_MAX)
    kind = models.CharField(max_length=40, choices=AlertKind)
    budget_id = models.CharField(max_length=BUDGET_ID_MAX, db_collation="C")
    rule = models.CharField(max_length=ID_MAX)
    """A percentage (`80`); of a balance `amount`, `runway`, `empty`; of spending `hour`, `day`; of
    credit that expires its grant."""
    starts_at = models.DateTimeField()
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    is_told = models.BooleanField(default=True)
    """False where a graver one of the same budget was told in its place."""
    figures = models.JSONField()

    class Meta:
        db_table = "alerts_alert"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "budget_id", "rule", "starts_at"],
                name="alert_is_raised_once",
                condition=Q(ended_at__isnull=True),
            )
        ]
        indexes = [
            models.Index(fields=["organization_id", "-created_at"], name="alert_by_organization")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.budget_id} {self.rule}"
