"""What our books and Stripe say differently, until somebody or the next look closes it."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.payments.models.customers import ID_MAX, Mode


class GapKind(models.TextChoices):
    """What does not fit."""

    UNKNOWN_PAYMENT = "unknown_payment", _("Payment at Stripe without a record here")
    UNLIKE_PAYMENT = "unlike_payment", _("Payment differs from our record")
    MISSING_PAYMENT = "missing_payment", _("Recorded payment missing at Stripe")
    UNKNOWN_REFUND = "unknown_refund", _("Refund at Stripe without a record here")
    UNLIKE_REFUND = "unlike_refund", _("Refund differs from our record")
    MISSING_REFUND = "missing_refund", _("Recorded refund missing at Stripe")
    DISPUTE = "dispute", _("Disputed amount differs from our record")


class Gap(models.Model):
    """One thing that does not fit, named once; `amount_cents` is Stripe's figure."""

    kind = models.CharField(max_length=32, choices=GapKind)
    reference = models.CharField(max_length=128)
    """Stripe's id of it, or ours where Stripe has none."""
    mode = models.CharField(max_length=4, choices=Mode)
    organization_id = models.CharField(max_length=ID_MAX, blank=True)
    amount_cents = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    words = models.CharField(max_length=500)
    seen_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=254, blank=True)
    closed_because = models.CharField(max_length=200, blank=True)

    class Meta:
        db_table = "payments_gap"
        verbose_name = "unmatched payment"
        constraints = [
            models.UniqueConstraint(fields=["kind", "reference"], name="gap_is_named_once")
        ]
        indexes = [
            models.Index(fields=["seen_at"], name="gap_open", condition=Q(closed_at__isnull=True))
        ]

    def __str__(self) -> str:
        return f"{self.reference}: {self.get_kind_display()}"

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it."""
        return self.closed_at is None


class Reconciliation(models.Model):
    """One look at everything that Stripe and we booked in a window, and how many gaps it found.

    It is made step by step, in the order of time and then dispute by dispute; how far it is stays
    kept, so that whoever ends early is followed by somebody who goes on from there.
    """

    mode = models.CharField(max_length=4, choices=Mode)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    looked_until = models.DateTimeField()
    """Up to when the window was looked at."""
    looked_dispute = models.CharField(max_length=ID_MAX, blank=True)
    """Of the disputes that are not decided, by Stripe's ids, the last that was looked at."""
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    movement_count = models.IntegerField(default=0)
    """Balance transactions of Stripe that were looked at."""
    healed_count = models.IntegerField(default=0)
    """Payments and refunds whose webhook never came, brought up to date."""
    gap_count = models.IntegerField(default=0)

    class Meta:
        db_table = "payments_reconciliation"
        constraints = [
            models.CheckConstraint(
                condition=Q(movement_count__gte=0, healed_count__gte=0, gap_count__gte=0),
                name="reconciliation_counts",
            ),
            models.UniqueConstraint(
                fields=["mode"],
                condition=Q(ended_at__isnull=True),
                name="reconciliation_under_way_is_one",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d} to {self.ends_at:%Y-%m-%d}"
