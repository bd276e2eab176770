"""Promotional codes: credit for whoever knows one, once per person."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Upper

from billing.credit.models import CreditGrant
from billing.payments.models.customers import ID_MAX
from control.db.models import append_only

CODE_MAX = 40


class PromotionalCode(models.Model):
    """A word worth credit until `expires_at`, so many times; the credit itself lasts
    `credit_days` (None: without end)."""

    code = models.CharField(primary_key=True, max_length=CODE_MAX)
    amount_nanos = models.BigIntegerField()
    credit_days = models.PositiveIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    redemptions_max = models.PositiveIntegerField(null=True, blank=True)
    redemption_count = models.PositiveIntegerField(default=0)
    ended_at = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "payments_promotional_code"
        constraints = [
            models.CheckConstraint(condition=Q(code=Upper("code")), name="code_is_upper_case"),
            models.CheckConstraint(condition=Q(amount_nanos__gt=0), name="code_is_worth_something"),
            models.CheckConstraint(
                condition=Q(redemptions_max__isnull=True)
                | Q(redemption_count__lte=F("redemptions_max")),
                name="code_is_not_overdrawn",
            ),
        ]

    def __str__(self) -> str:
        return self.code


class Redemption(models.Model):
    """A person who used a code: once, however many organizations they are in."""

    code = models.ForeignKey(PromotionalCode, models.PROTECT, related_name="redemptions")
    user_id = models.CharField(max_length=ID_MAX)
    organization_id = models.CharField(max_length=ID_MAX)
    grant = models.OneToOneField(CreditGrant, models.PROTECT, related_name="redemption")
    redeemed_at = models.DateTimeField()

    class Meta:
        db_table = "payments_redemption"
        constraints = [
            models.UniqueConstraint(fields=["code", "user_id"], name="code_is_used_once")
        ]
        triggers = append_only("redemption")

    def __str__(self) -> str:
        return f"{self.code_id} by {self.user_id}"
