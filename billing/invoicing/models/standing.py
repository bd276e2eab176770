"""How an invoice stands: what was paid of it, and whether somebody disputes it."""

from django.db import models
from django.db.models import Q

from billing.invoicing.models.documents import Invoice
from control.db.models import ID_MAX, append_only


class InvoicePayment(models.Model):
    """A part of an invoice that was settled (positive nanos), or fell open again (negative).

    `cause` says by what, `payment_id` by which payment where that is known.
    """

    invoice = models.ForeignKey(Invoice, models.PROTECT, related_name="payments")
    organization_id = models.CharField(max_length=ID_MAX)
    nanos = models.BigIntegerField()
    cause = models.CharField(max_length=40)
    payment_id = models.CharField(max_length=ID_MAX, blank=True)
    settled_at = models.DateTimeField()

    class Meta:
        db_table = "invoicing_invoice_payment"
        constraints = [models.CheckConstraint(condition=~Q(nanos=0), name="payment_moves_money")]
        indexes = [models.Index(fields=["organization_id"], name="invoice_payment_by_org")]
        triggers = append_only("invoice_payment")

    def __str__(self) -> str:
        return f"{self.invoice_id}: {self.nanos}"


class Dispute(models.Model):
    """An invoice that the customer, or their bank, does not accept for now: it is not dunned."""

    invoice = models.ForeignKey(Invoice, models.PROTECT, related_name="disputes")
    organization_id = models.CharField(max_length=ID_MAX)
    key = models.CharField(max_length=200)
    reason = models.CharField(max_length=200)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "invoicing_dispute"
        constraints = [
            models.UniqueConstraint(fields=["invoice", "key"], name="dispute_is_opened_once")
        ]

    def __str__(self) -> str:
        return f"{self.invoice_id}: {self.reason}"
