"""Who bills whom: the operator's legal entities, the customers' billing profiles, tax rates."""

from datetime import date

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from control.accounts.models import EMAIL_MAX
from control.db.models import ID_MAX, new_id
from control.organizations.models import Organization

TEXT_MAX = 200
COUNTRY_MAX = 2
CURRENCY_MAX = 3
RATE_MAX = 10_000
TERMS_DAYS_MAX = 120
EARLIEST = date(1970, 1, 1)


def new_legal_entity_id() -> str:
    """Return a fresh id of a legal entity."""
    return new_id("entity")


class Paper(models.TextChoices):
    """What invoices are printed on."""

    A4 = "a4", _("A4")
    LETTER = "us-letter", _("Letter")


class LegalEntity(models.Model):
    """Whom invoices are from. It numbers its documents without gaps: `next_invoice` is given out
    under the row's lock, in the transaction that writes the document."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_legal_entity_id)
    name = models.CharField(max_length=TEXT_MAX)
    address = models.TextField(max_length=1000, help_text=_("One per line."))
    country = models.CharField(max_length=COUNTRY_MAX, help_text=_("ISO 3166 code, such as DE."))
    region = models.CharField(max_length=TEXT_MAX, blank=True)
    tax_ids = models.TextField(
        max_length=1000, blank=True, help_text=_("One per line, such as VAT DE123456789.")
    )
    email = models.EmailField(max_length=EMAIL_MAX, blank=True)
    bank_details = models.TextField(max_length=1000, blank=True, help_text=_("One per line."))
    footer = models.TextField(max_length=1000, blank=True, help_text=_("Printed on every page."))
    logo_svg = models.TextField("logo (SVG)", max_length=100_000, blank=True)
    tax_calculator = models.CharField(max_length=40, default="rate_table")
    number_prefix = models.CharField(max_length=20, default="INV-")
    next_invoice = models.PositiveBigIntegerField(default=1, editable=False)
    credit_note_prefix = models.CharField(max_length=20, default="CN-")
    next_credit_note = models.PositiveBigIntegerField(default=1, editable=False)
    is_default = models.BooleanField(default=False)

    class Meta:
        db_table = "invoicing_legal_entity"
        verbose_name_plural = "legal entities"
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"],
                name="one_legal_entity_is_default",
                condition=Q(is_default=True),
            ),
            models.UniqueConstraint(fields=["number_prefix"], name="invoice_prefix_is_unique"),
            models.UniqueConstraint(
                fields=["credit_note_prefix"], name="credit_note_prefix_is_unique"
            ),
            models.CheckConstraint(
                condition=~Q(number_prefix=F("credit_note_prefix")), name="prefixes_are_told_apart"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class BillingProfile(models.Model):
    """Whom an organization's invoices are for. Without a row they are for its name alone."""

    organization = models.OneToOneField(
        Organization, models.PROTECT, primary_key=True, related_name="+"
    )
    legal_name = models.CharField(max_length=TEXT_MAX, blank=True)
    line1 = models.CharField("address", max_length=TEXT_MAX, blank=True)
    line2 = models.CharField("address, second line", max_length=TEXT_MAX, blank=True)
    postal_code = models.CharField(max_length=20, blank=True)
    city = models.CharField(max_length=TEXT_MAX, blank=True)
    region = models.CharField(max_length=TEXT_MAX, blank=True)
    country = models.CharField(max_length=COUNTRY_MAX, blank=True)
    tax_id = models.CharField(max_length=40, blank=True)
    currency = models.CharField(max_length=CURRENCY_MAX, default="USD")
    recipients = ArrayField(models.EmailField(max_length=EMAIL_MAX), default=list, blank=True)
    purchase_order = models.CharField(max_length=TEXT_MAX, blank=True)
    terms_days = models.PositiveSmallIntegerField(default=14)
    paper = models.CharField(max_length=16, choices=Paper, default=Paper.A4)
    legal_entity = models.ForeignKey(LegalEntity, models.PROTECT, null=True, blank=True)

    class Meta:
        db_table = "invoicing_billing_profile"
        constraints = [
            models.CheckConstraint(
                condition=Q(terms_days__lte=TERMS_DAYS_MAX), name="terms_are_bounded"
            ),
            models.CheckConstraint(condition=Q(paper__in=Paper.values), name="paper_is_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The name on the invoice."""
        return self.legal_name or self.organization.name

    @property
    def collection(self) -> str:
        """Whether it pays before or after it uses: `prepaid` or `postpaid`."""
        return self.organization.billing_mode

    @property
    def address(self) -> list[str]:
        """The lines under the name, without the country."""
        town = " ".join(part for part in (self.postal_code, self.city) if part)
        return [line for line in (self.line1, self.line2, town, self.region) if line]


class TaxRate(models.Model):
    """What is added to sales to a country, or one region of it, from a day on."""

    country = models.CharField(max_length=COUNTRY_MAX, help_text=_("ISO 3166 code, such as DE."))
    region = models.CharField(
        max_length=TEXT_MAX,
        blank=True,
        help_text=_("As in billing profiles. Empty: the whole country."),
    )
    name = models.CharField(max_length=40, help_text=_("As printed on the invoice, such as VAT."))
    rate_basis_points = models.PositiveIntegerField(help_text=_("1900 is 19 %."))
    reverse_charge = models.BooleanField(
        default=False,
        help_text=_(
            "Businesses abroad with a tax ID pay it themselves: none is added, and the invoice"
            " says so."
        ),
    )
    starts_on = models.DateField(default=EARLIEST)

    class Meta:
        db_table = "invoicing_tax_rate"
        constraints = [
            models.UniqueConstraint(
                fields=["country", "region", "starts_on"], name="tax_rate_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(rate_basis_points__lte=RATE_MAX), name="tax_rate_is_a_share"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.country} {self.region}".strip()


class ExchangeRate(models.Model):
    """What a dollar is worth in a currency that documents show amounts in, beside the dollars that
    the books are kept in: for information alone."""

    currency = models.CharField(primary_key=True, max_length=CURRENCY_MAX)
    micros = models.PositiveBigIntegerField(
        "millionths of a unit", help_text=_("For a dollar: 920000 is 0.92.")
    )
    as_of = models.DateField()

    class Meta:
        db_table = "invoicing_exchange_rate"
        constraints = [
            models.CheckConstraint(condition=Q(micros__gt=0), name="exchange_rate_is_positive")
        ]

    def __str__(self) -> str:
        return self.currency
