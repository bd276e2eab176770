"""Money that Stripe is asked to collect for an organization: a top-up, or an invoice."""

import pgtrigger
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.payments.models.customers import ID_MAX, Mode, PaymentMethod
from control.db.models import new_id

NANOS_PER_CENT = 10_000_000
KEY_MAX = 64
WORDS_MAX = 500


def new_payment_id() -> str:
    """Return a fresh id of a payment through Stripe."""
    return new_id("pmt")


class Purpose(models.TextChoices):
    """What is paid."""

    TOP_UP = "top_up", _("Credit purchase")
    AUTOMATIC = "automatic", _("Auto-recharge")
    INVOICE = "invoice", _("Invoice")


class PaymentStatus(models.TextChoices):
    """How far a payment is. It only moves on (`RANK`), whatever order news of it comes in; a
    success counts even after a failure, because the money is there."""

    CREATED = "created", _("Requested")
    OPEN = "open", _("Not paid yet")
    REQUIRES_ACTION = "requires_action", _("Needs confirmation")
    PROCESSING = "processing", _("Processing")
    CANCELED = "canceled", _("Canceled")
    FAILED = "failed", _("Declined")
    SUCCEEDED = "succeeded", _("Paid")


RANK = {status: rank for rank, status in enumerate(PaymentStatus.values)}
FINAL = (PaymentStatus.CANCELED, PaymentStatus.FAILED, PaymentStatus.SUCCEEDED)
OPEN = tuple(status for status in PaymentStatus.values if status not in FINAL)
"""Nobody knows yet whether money will come."""


class StripePayment(models.Model):
    """One amount asked of Stripe once. The row is committed before Stripe hears of it, and its id
    is the idempotency key and the metadata of what is made there.

    `amount_cents` is what it is worth here (credit, or an invoice's amount due), `tax_cents` comes
    on top of it; the customer pays the total. `payment_id` is the payment in the books.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_payment_id)
    organization_id = models.CharField(max_length=ID_MAX)
    mode = models.CharField(max_length=4, choices=Mode)
    purpose = models.CharField(max_length=16, choices=Purpose)
    amount_cents = models.BigIntegerField()
    tax_cents = models.BigIntegerField(default=0)
    status = models.CharField(max_length=16, choices=PaymentStatus, default=PaymentStatus.CREATED)
    method = models.ForeignKey(PaymentMethod, models.PROTECT, null=True, blank=True)
    invoice_id = models.CharField(max_length=ID_MAX, blank=True)
    idempotency_key = models.CharField(max_length=KEY_MAX)
    requested_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True, blank=True)
    """When Stripe was first asked; from then on it may know of it."""
    looked_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    customer_stripe_id = models.CharField(max_length=ID_MAX, blank=True)
    intent_id = models.CharField(max_length=ID_MAX, unique=True, null=True, blank=True)
    checkout_id = models.CharField(max_length=128, unique=True, null=True, blank=True)
    action_url = models.TextField(blank=True)
    """Where the customer goes on: Stripe's checkout, or their bank."""
    receipt_url = models.TextField(blank=True)
    failure_code = models.CharField(max_length=64, blank=True)
    failure_words = models.CharField(max_length=WORDS_MAX, blank=True)
    """What the customer is told."""
    stripe_words = models.CharField(max_length=WORDS_MAX, blank=True)
    """What Stripe said where it refused the question itself: for operators."""
    payment_id = models.CharField(max_length=ID_MAX, unique=True, null=True, blank=True)

    class Meta:
        db_table = "payments_payment"
        verbose_name = "payment through Stripe"
        verbose_name_plural = "payments through Stripe"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "mode", "purpose", "idempotency_key"],
                name="stripe_payment_is_made_once",
            ),
            models.CheckConstraint(
                condition=Q(amount_cents__gt=0, tax_cents__gte=0), name="stripe_payment_is_positive"
            ),
            models.CheckConstraint(
                condition=Q(status="succeeded", payment_id__isnull=False)
                | ~Q(status="succeeded") & Q(payment_id__isnull=True),
                name="stripe_payment_paid_is_booked",
            ),
            models.CheckConstraint(
                condition=Q(status__in=FINAL, settled_at__isnull=False)
                | ~Q(status__in=FINAL) & Q(settled_at__isnull=True),
                name="stripe_payment_final_is_settled",
            ),
            models.CheckConstraint(
                condition=Q(purpose="invoice") & ~Q(invoice_id="")
                | ~Q(purpose="invoice") & Q(invoice_id=""),
                name="stripe_payment_names_its_invoice",
            ),
            models.UniqueConstraint(
                fields=["organization_id", "mode"],
                condition=Q(purpose="automatic", status__in=OPEN),
                name="stripe_payment_one_automatic",
            ),
            models.UniqueConstraint(
                fields=["invoice_id", "mode"],
                condition=Q(purpose="invoice", status__in=OPEN),
                name="stripe_payment_one_per_invoice",
            ),
        ]
        indexes = [
            models.Index(fields=["organization_id", "-created_at"], name="stripe_payment_by_org"),
            models.Index(
                fields=["looked_at"], name="stripe_payment_open", condition=Q(status__in=OPEN)
            ),
        ]
        triggers = [
            pgtrigger.Protect(
                name="stripe_payment_paid_stays",
                operation=pgtrigger.Update | pgtrigger.Delete,
                condition=pgtrigger.Q(old__status="succeeded"),
            )
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def total_cents(self) -> int:
        """What the customer pays."""
        return self.amount_cents + self.tax_cents

    @property
    def is_open(self) -> bool:
        """Whether nobody knows yet if money will come."""
        return self.status in OPEN

    @property
    def is_on_page(self) -> bool:
        """Whether it is paid on Stripe's page, known by an id or not, where cards may be tried."""
        return self.method_id is None

    @property
    def is_off_session(self) -> bool:
        """Whether nobody sits at a screen and could confirm it to their bank."""
        return self.purpose != Purpose.TOP_UP
