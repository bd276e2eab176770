"""Money that goes back: refunds that we make, and disputes that a customer's bank makes."""

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from billing.payments.models.customers import ID_MAX, Mode
from billing.payments.models.payments import KEY_MAX, WORDS_MAX, StripePayment
from control.db.models import new_id


def new_refund_id() -> str:
    """Return a fresh id of a refund."""
    return new_id("refund")


class RefundStatus(models.TextChoices):
    """How far a refund is; `FAILED` even after a success, when the bank sends the money back."""

    WAITING = "waiting", _("Waiting for credit held by gateways")
    CREATED = "created", _("Requested")
    PENDING = "pending", _("Processing")
    SUCCEEDED = "succeeded", _("Refunded")
    FAILED = "failed", _("Failed")


class Refund(models.Model):
    """Part of a payment paid back to where it came from: `amount_cents` of credit, `tax_cents` of
    the tax on it. The credit goes when the row is made, or, while gateways hold it, once they gave
    it back; it comes back when the refund fails."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_refund_id)
    organization_id = models.CharField(max_length=ID_MAX)
    mode = models.CharField(max_length=4, choices=Mode)
    payment = models.ForeignKey(StripePayment, models.PROTECT, related_name="refunds")
    amount_cents = models.BigIntegerField()
    tax_cents = models.BigIntegerField(default=0)
    status = models.CharField(max_length=16, choices=RefundStatus, default=RefundStatus.CREATED)
    stripe_id = models.CharField(max_length=ID_MAX, unique=True, null=True, blank=True)
    idempotency_key = models.CharField(max_length=KEY_MAX)
    reason = models.CharField(max_length=200)
    requested_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    failure_words = models.CharField(max_length=WORDS_MAX, blank=True)

    class Meta:
        db_table = "payments_refund"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "idempotency_key"], name="refund_is_made_once"
            ),
            models.CheckConstraint(
                condition=Q(amount_cents__gte=0, tax_cents__gte=0)
                & Q(amount_cents__gt=-F("tax_cents")),
                name="refund_is_positive",
            ),
        ]
        indexes = [
            models.Index(
                fields=["looked_at"],
                name="refund_open",
                condition=Q(status__in=("created", "pending")),
            )
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def total_cents(self) -> int:
        """What goes back to the customer."""
        return self.amount_cents + self.tax_cents


class Dispute(models.Model):
    """A payment that the customer's bank asks back. While the money is withdrawn the credit bought
    with it is taken back, and given again if the dispute is won."""

    stripe_id = models.CharField(primary_key=True, max_length=ID_MAX)
    organization_id = models.CharField(max_length=ID_MAX)
    mode = models.CharField(max_length=4, choices=Mode)
    payment = models.ForeignKey(StripePayment, models.PROTECT, related_name="disputes")
    amount_cents = models.BigIntegerField()
    reason = models.CharField(max_length=64)
    status = models.CharField(max_length=32)
    """Stripe's word, for people."""
    due_by = models.DateTimeField(null=True, blank=True)
    opened_at = models.DateTimeField()
    taken_cents = models.BigIntegerField(default=0)
    """The credit taken back when the money was withdrawn, net of tax."""
    taken_tax_cents = models.BigIntegerField(default=0)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    reinstated_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "payments_dispute"
        constraints = [
            models.CheckConstraint(
                condition=Q(amount_cents__gt=0, taken_cents__gte=0, taken_tax_cents__gte=0),
                name="dispute_is_positive",
            ),
            models.CheckConstraint(
                condition=Q(reinstated_at__isnull=True) | Q(withdrawn_at__isnull=False),
                name="dispute_reinstated_was_withdrawn",
            ),
        ]
        indexes = [models.Index(fields=["organization_id"], name="dispute_by_org")]

    def __str__(self) -> str:
        return self.stripe_id

    @property
    def is_open(self) -> bool:
        """Whether it is not decided yet."""
        return self.closed_at is None
