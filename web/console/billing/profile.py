"""The billing profile: its form and its page."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from billing.invoicing.countries import COUNTRIES
from billing.invoicing.models import BillingProfile, ExchangeRate, Paper
from billing.invoicing.models.parties import TEXT_MAX
from billing.invoicing.selectors import billing_profile
from billing.invoicing.services.profiles import set_billing_profile
from control.permissions import Permission
from web.console.base import PageContext, console_page
from web.console.billing.views import require_money
from web.console.forms import apply_or_form_error

POSTAL_CODE_MAX = 20
TAX_ID_MAX = 40


class ProfileForm(forms.Form):
    """A billing profile; empty fields are left off the invoice. The service validates it."""

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
        """Return the form with the profile's values."""
        initial = {name: getattr(profile, name) for name in cls.base_fields}
        return cls(initial=initial | {"recipients": "\n".join(profile.recipients)})

    def clean_recipients(self) -> list[str]:
        """Return the email addresses."""
        return str(self.cleaned_data["recipients"]).replace(",", " ").split()


@console_page("billing")
def billing_profile_page(page: PageContext) -> HttpResponse:
    """Show the profile; a POST changes it."""
    require_money(page, Permission.BILLING_WRITE)
    profile = billing_profile(page.organization)
    if page.request.method != "POST":
        return render_profile(page, ProfileForm.of(profile))
    form = ProfileForm(page.request.POST)
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: set_billing_profile(
            organization=page.organization, actor=page.actor, changes=form.cleaned_data
        ),
    ):
        messages.success(page.request, "The profile is saved; the next invoice carries it.")
        return redirect(page.url("billing_profile"))
    return render_profile(page, form)


def render_profile(page: PageContext, form: ProfileForm) -> HttpResponse:
    """Return the page with the form as it was submitted."""
    context = {"form": form, "profile": billing_profile(page.organization)}
    return page.render("console/billing/profile.html", context, 400 if form.errors else 200)
