"""Final documents: invoices and credit notes with their lines. Written once, never changed.

They hold all that is printed: what a party or a model is called later changes no document.
"""

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from billing.invoicing.models.parties import LegalEntity, Paper
from billing.invoicing.periods import Period
from control.db.models import ID_MAX, append_only, new_id
from serving.contract.money import CENT_NANOS, cents


def new_invoice_id() -> str:
    """Return a fresh id of an invoice."""
    return new_id("inv")


def new_credit_note_id() -> str:
    """Return a fresh id of a credit note."""
    return new_id("note")


class Meter(models.TextChoices):
    """What is counted."""

    INPUT = "input", _("Input tokens")
    CACHED_INPUT = "cached_input", _("Cached input tokens")
    OUTPUT = "output", _("Output tokens")


class NumberedDocument(models.Model):
    """What a legal entity issued: its number is the next of its kind, without gaps."""

    organization_id = models.CharField(max_length=ID_MAX)
    legal_entity = models.ForeignKey(LegalEntity, models.PROTECT, related_name="+")
    number = models.CharField(max_length=40, unique=True)
    sequence = models.PositiveBigIntegerField()
    issued_at = models.DateTimeField()
    net_cents = models.BigIntegerField()
    tax_cents = models.BigIntegerField()
    total_cents = models.BigIntegerField()

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(
                fields=["legal_entity", "sequence"], name="%(class)s_sequence_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(total_cents=F("net_cents") + F("tax_cents")), name="%(class)s_adds_up"
            ),
        ]

    def __str__(self) -> str:
        return self.number


class Invoice(NumberedDocument):
    """One organization's month. `usage_nanos` is the exact sum of its lines, `owed_nanos` what of
    it no credit covered; `net_cents` is due before tax, `total_cents` with it.

    `paid_before_nanos` was paid before it was issued. `buyer`, `seller`, `tax` and `days` are what
    the document shows of the parties, the tax and each day's usage (nanos by meter).
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_invoice_id)
    starts_on = models.DateField()
    ends_on = models.DateField()
    due_on = models.DateField()
    currency = models.CharField(max_length=3)
    collection = models.CharField(max_length=16)
    paper = models.CharField(max_length=16, choices=Paper)
    purchase_order = models.CharField(max_length=200, blank=True)
    buyer = models.JSONField()
    seller = models.JSONField()
    tax = models.JSONField()
    days = models.JSONField()
    usage_nanos = models.BigIntegerField()
    owed_nanos = models.BigIntegerField()
    paid_before_nanos = models.BigIntegerField()
    subtotal_cents = models.BigIntegerField()
    credit_applied_cents = models.BigIntegerField()

    class Meta(NumberedDocument.Meta):
        db_table = "invoicing_invoice"
        constraints = [
            *NumberedDocument.Meta.constraints,
            models.UniqueConstraint(
                fields=["organization_id", "starts_on"], name="month_is_invoiced_once"
            ),
            models.CheckConstraint(
                condition=Q(net_cents=F("subtotal_cents") - F("credit_applied_cents")),
                name="invoice_credit_is_applied",
            ),
            models.CheckConstraint(
                condition=Q(
                    net_cents__gte=0, tax_cents__gte=0, credit_applied_cents__gte=0,
                    owed_nanos__gte=0, owed_nanos__lte=F("usage_nanos"),
                    paid_before_nanos__gte=0,
                    paid_before_nanos__lte=F("total_cents") * CENT_NANOS,
                ),
                name="invoice_not_negative",
            ),
        ]  # fmt: skip
        indexes = [models.Index(fields=["starts_on"], name="invoice_by_month")]
        triggers = append_only("invoice")

    @property
    def period(self) -> Period:
        """The month it is of."""
        return Period(self.starts_on)

    @property
    def total_nanos(self) -> int:
        """The total as the books count."""
        return self.total_cents * CENT_NANOS

    @property
    def due_cents(self) -> int:
        """What was left to pay when it was issued."""
        return cents(self.total_nanos - self.paid_before_nanos)


class InvoiceLine(models.Model):
    """One model, variant, tier, price and meter: `amount_cents` is `amount_nanos` rounded once.

    `received_on` is the first day of the month in which the usage was received: an earlier one
    than the invoice's is usage that came after that month was closed.
    """

    invoice = models.ForeignKey(Invoice, models.PROTECT, related_name="lines")
    organization_id = models.CharField(max_length=ID_MAX)
    position = models.PositiveIntegerField()
    model_id = models.CharField(max_length=ID_MAX)
    model_name = models.CharField(max_length=200)
    variant_id = models.CharField(max_length=ID_MAX)
    variant_name = models.CharField(max_length=200)
    tier = models.CharField(max_length=16)
    price_id = models.CharField(max_length=ID_MAX)
    input_tokens_min = models.PositiveBigIntegerField()
    meter = models.CharField(max_length=16, choices=Meter)
    received_on = models.DateField()
    quantity_tokens = models.BigIntegerField()
    unit_price_nanos = models.BigIntegerField()
    """Per million tokens."""
    amount_nanos = models.BigIntegerField()
    amount_cents = models.BigIntegerField()

    class Meta:
        db_table = "invoicing_invoice_line"
        constraints = [
            models.UniqueConstraint(fields=["invoice", "position"], name="line_has_its_place"),
            models.CheckConstraint(
                condition=Q(amount_nanos__gt=0, amount_cents__gte=0), name="line_is_positive"
            ),
        ]
        triggers = append_only("line")

    def __str__(self) -> str:
        return f"{self.variant_name} {self.tier} {self.meter}"

    @property
    def period(self) -> Period:
        """The month that the usage was received in."""
        return Period(self.received_on)


class CreditNote(NumberedDocument):
    """What an invoice, or part of it, is taken back by. Its total is given back: `settled_nanos`
    of it off what is owed, the rest as credit."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_credit_note_id)
    invoice = models.ForeignKey(Invoice, models.PROTECT, related_name="credit_notes")
    idempotency_key = models.CharField(max_length=200)
    reason = models.CharField(max_length=200)
    issued_by = models.CharField(max_length=254)
    settled_nanos = models.BigIntegerField()

    class Meta(NumberedDocument.Meta):
        db_table = "invoicing_credit_note"
        constraints = [
            *NumberedDocument.Meta.constraints,
            models.UniqueConstraint(
                fields=["organization_id", "idempotency_key"], name="credit_note_is_made_once"
            ),
            models.CheckConstraint(
                condition=Q(net_cents__gt=0, tax_cents__gte=0, settled_nanos__gte=0),
                name="credit_note_is_positive",
            ),
        ]
        triggers = append_only("credit_note")


class CreditNoteLine(models.Model):
    """How much of one line of the invoice is taken back."""

    credit_note = models.ForeignKey(CreditNote, models.PROTECT, related_name="lines")
    line = models.ForeignKey(InvoiceLine, models.PROTECT, related_name="credits")
    organization_id = models.CharField(max_length=ID_MAX)
    amount_cents = models.BigIntegerField()

    class Meta:
        db_table = "invoicing_credit_note_line"
        constraints = [
            models.UniqueConstraint(
                fields=["credit_note", "line"], name="line_is_credited_once_a_note"
            ),
            models.CheckConstraint(
                condition=Q(amount_cents__gt=0), name="credited_amount_is_positive"
            ),
        ]
        triggers = append_only("credit_note_line")

    def __str__(self) -> str:
        return f"{self.line}: {self.amount_cents}"
