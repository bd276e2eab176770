"""Who pays, and with what: an organization at Stripe, and its saved cards and bank accounts."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from control.db.models import new_id

ID_MAX = 64
NAME_MAX = 200


def new_method_id() -> str:
    """Return a fresh id of a payment method."""
    return new_id("method")


class Mode(models.TextChoices):
    """Whether money is real."""

    LIVE = "live", _("Live")
    TEST = "test", _("Test")


class StripeCustomer(models.Model):
    """An organization as Stripe knows it. The row comes first, `stripe_id` with Stripe's answer:
    the row's id is the idempotency key of the question."""

    organization_id = models.CharField(max_length=ID_MAX)
    mode = models.CharField(max_length=4, choices=Mode)
    stripe_id = models.CharField(max_length=ID_MAX, unique=True, null=True, blank=True)
    name = models.CharField(max_length=NAME_MAX, blank=True)
    """What Stripe was told last that it is called: a repeated question says the same."""
    created_at = models.DateTimeField()

    class Meta:
        db_table = "payments_stripe_customer"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "mode"], name="stripe_customer_is_one"
            )
        ]

    def __str__(self) -> str:
        return self.stripe_id or f"customer {self.pk}"


class PaymentMethod(models.Model):
    """A saved card or bank account: what people recognise it by, never its number."""

    class Kind(models.TextChoices):
        """What it is."""

        CARD = "card", _("Card")
        BANK = "bank", _("Bank account")

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_method_id)
    organization_id = models.CharField(max_length=ID_MAX)
    mode = models.CharField(max_length=4, choices=Mode)
    stripe_id = models.CharField(max_length=ID_MAX, unique=True)
    kind = models.CharField(max_length=4, choices=Kind)
    brand = models.CharField(max_length=64)
    last4 = models.CharField(max_length=4)
    expires_year = models.SmallIntegerField(null=True, blank=True)
    expires_month = models.SmallIntegerField(null=True, blank=True)
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    detached_at = models.DateTimeField(null=True, blank=True)
    """When it was taken off; it pays nothing from then on."""

    class Meta:
        db_table = "payments_method"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "mode"],
                condition=Q(is_default=True),
                name="payment_method_default_is_one",
            ),
            models.CheckConstraint(
                condition=Q(detached_at__isnull=True) | Q(is_default=False),
                name="payment_method_detached_is_no_default",
            ),
        ]
        indexes = [models.Index(fields=["organization_id"], name="payment_method_by_org")]

    def __str__(self) -> str:
        return f"{self.brand} …{self.last4}"
