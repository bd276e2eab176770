"""Topping up by itself."""

from django.db import models
from django.db.models import Q

from billing.payments.models.customers import ID_MAX


class AutoTopUp(models.Model):
    """When the balance falls under the threshold, `amount_cents` are charged to the default method;
    never more than `monthly_cap_cents` in a UTC month, tax aside. Two declines in a row stop it."""

    organization_id = models.CharField(primary_key=True, max_length=ID_MAX)
    is_on = models.BooleanField(default=False)
    threshold_cents = models.BigIntegerField()
    amount_cents = models.BigIntegerField()
    monthly_cap_cents = models.BigIntegerField()
    decline_count = models.SmallIntegerField(default=0)
    stopped_at = models.DateTimeField(null=True, blank=True)
    """When declines stopped it; saving the settings starts it again."""
    changed_by = models.CharField(max_length=254)
    changed_at = models.DateTimeField()

    class Meta:
        db_table = "payments_auto_top_up"
        constraints = [
            models.CheckConstraint(
                condition=Q(threshold_cents__gte=0, amount_cents__gt=0)
                & Q(monthly_cap_cents__gte=models.F("amount_cents")),
                name="auto_top_up_makes_sense",
            )
        ]
        indexes = [
            models.Index(
                fields=["organization_id"],
                name="auto_top_up_running",
                condition=Q(is_on=True, stopped_at__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return self.organization_id

    @property
    def is_running(self) -> bool:
        """Whether it would top up now."""
        return self.is_on and self.stopped_at is None
