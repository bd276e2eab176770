"""Limits of spending by the week and the day, and soft ones by the month."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from control.tenants.models import ID_MAX, Organization


class LimitPeriod(models.TextChoices):
    """How often a limit begins anew, at midnight UTC; weeks begin on Monday."""

    MONTH = "month", "Month"
    WEEK = "week", "Week"
    DAY = "day", "Day"


class SpendLimit(models.Model):
    """How much an organization, a project or a key may spend in a period. A hard limit refuses what
    would go beyond it, a soft one only tells.

    The hard limit of a month is not here but in its owner's row (`spend_limit_nanos`).
    """

    budget_id = models.CharField(max_length=ID_MAX + 16, primary_key=True, db_collation="C")
    """`serving.contract.budget.limit_budget_id`: one limit per owner and period."""
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="spend_limits")
    limited_id = models.CharField(max_length=ID_MAX)
    """The organization, the project or the key."""
    period = models.CharField(max_length=8, choices=LimitPeriod)
    limit_nanos = models.BigIntegerField()
    is_hard = models.BooleanField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "budgets_spend_limit"
        constraints = [
            models.CheckConstraint(
                condition=Q(limit_nanos__gte=0), name="spend_limit_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(period__in=["week", "day"]) | Q(period="month", is_hard=False),
                name="hard_month_is_its_owners",
            ),
            models.UniqueConstraint(fields=["limited_id", "period"], name="spend_limit_is_unique"),
        ]

    def __str__(self) -> str:
        return self.budget_id
