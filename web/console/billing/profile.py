"""Whom invoices are for, as members type it."""

from typing import Any

from django import forms

from billing.invoicing.countries import COUNTRIES
from billing.invoicing.models import BillingProfile, ExchangeRate, Paper
from billing.invoicing.models.parties import TEXT_MAX

POSTAL_CODE_MAX = 20
TAX_ID_MAX = 40


class ProfileForm(forms.Form):
    """A billing profile; what is empty is left off the invoice. The service checks it."""

    legal_name = forms.CharField(
        required=False, max_length=TEXT_MAX, help_text="Empty: the organization's name."
    )
    line1 = forms.CharField(label="Address", required=False, max_length=TEXT_MAX)
    line2 = forms.CharField(label="Address, second line", required=False, max_length=TEXT_MAX)
    postal_code = forms.CharField(required=False, max_length=POSTAL_CODE_MAX)
    city = forms.CharField(required=False, max_length=TEXT_MAX)
    region = forms.CharField(label="State or region", required=False, max_length=TEXT_MAX)
    country = forms.ChoiceField(
        required=False,
        choices=[("", "Not said"), *sorted(COUNTRIES.items(), key=lambda item: item[1])],
        help_text="Tax is that of the country and region.",
    )
    tax_id = forms.CharField(
        label="Tax id", required=False, max_length=TAX_ID_MAX, help_text="Such as DE123456789."
    )
    purchase_order = forms.CharField(
        label="Purchase order", required=False, max_length=TEXT_MAX, help_text="On every invoice."
    )
    recipients = forms.CharField(
        label="Invoices are mailed to",
        required=False,
        help_text="Addresses, one a line. Empty: owners, admins and billing members.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    currency = forms.ChoiceField(
        label="Show amounts also in",
        help_text="For information; invoices are in US dollars.",
    )
    paper = forms.ChoiceField(choices=Paper.choices)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        codes = ["USD", *ExchangeRate.objects.values_list("currency", flat=True)]
        self.fields["currency"].choices = [(code, code) for code in dict.fromkeys(codes)]  # type: ignore[attr-defined]

    @classmethod
    def of(cls, profile: BillingProfile) -> "ProfileForm":
        """Return the form as the profile is."""
        initial = {name: getattr(profile, name) for name in cls.base_fields}
        return cls(initial=initial | {"recipients": "\n".join(profile.recipients)})

    def clean_recipients(self) -> list[str]:
        """Return the addresses."""
        return str(self.cleaned_data["recipients"]).replace(",", " ").split()
