"""The billing profile: its form and its page."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.invoicing.countries import COUNTRIES
from billing.invoicing.models import BillingProfile, ExchangeRate, Paper
from billing.invoicing.models.parties import TEXT_MAX
from billing.invoicing.selectors import billing_profile
from billing.invoicing.services.profiles import set_billing_profile
from control.forms import VERSION, VersionedForm
from control.permissions import Permission
from web.console.base import PageContext, console_page
from web.console.billing.views import require_money
from web.console.forms import save_edit, status_of

POSTAL_CODE_MAX = 20
TAX_ID_MAX = 40


class ProfileForm(VersionedForm):
    """A billing profile; empty fields are left off the invoice. The service validates it."""

    legal_name = forms.CharField(
        label=_("Legal name"),
        required=False,
        max_length=TEXT_MAX,
        help_text=_("Leave empty to use the organization's name."),
    )
    line1 = forms.CharField(label=_("Address"), required=False, max_length=TEXT_MAX)
    line2 = forms.CharField(label=_("Address, second line"), required=False, max_length=TEXT_MAX)
    postal_code = forms.CharField(
        label=_("Postal code"), required=False, max_length=POSTAL_CODE_MAX
    )
    city = forms.CharField(label=_("City"), required=False, max_length=TEXT_MAX)
    region = forms.CharField(label=_("State or region"), required=False, max_length=TEXT_MAX)
    country = forms.ChoiceField(
        label=_("Country"),
        required=False,
        choices=[("", _("Not specified")), *sorted(COUNTRIES.items(), key=lambda item: item[1])],
        help_text=_("The country and region determine the tax."),
    )
    tax_id = forms.CharField(
        label=_("Tax ID"),
        required=False,
        max_length=TAX_ID_MAX,
        help_text=_("As your country writes it, such as DE123456789 or T1234567890123."),
    )
    purchase_order = forms.CharField(
        label=_("Purchase order"),
        required=False,
        max_length=TEXT_MAX,
        help_text=_("Shown on every invoice."),
    )
    recipients = forms.CharField(
        label=_("Send invoices to"),
        required=False,
        help_text=_(
            "Email addresses, one per line. Leave empty for owners, admins and billing members."
        ),
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    currency = forms.ChoiceField(
        label=_("Also show amounts in"),
        help_text=_("For information only; invoices are in US dollars."),
    )
    paper = forms.ChoiceField(label=_("Paper"), choices=Paper.choices)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        codes = ["USD", *ExchangeRate.objects.values_list("currency", flat=True)]
        self.fields["currency"].choices = [(code, code) for code in dict.fromkeys(codes)]  # type: ignore[attr-defined]

    @classmethod
    def of(cls, profile: BillingProfile) -> "ProfileForm":
        """Return the form with the profile's values."""
        initial = {name: getattr(profile, name) for name in cls.base_fields if name != VERSION}
        return cls(initial=initial | {"recipients": "\n".join(profile.recipients)})

    def clean_recipients(self) -> list[str]:
        """Return the email addresses."""
        return str(self.cleaned_data["recipients"]).replace(",", " ").split()


@console_page("billing")
def billing_profile_page(page: PageContext) -> HttpResponse:
    """Show the profile; a POST changes it."""
    require_money(page, Permission.BILLING_WRITE)

    def present() -> ProfileForm:
        return ProfileForm.of(billing_profile(page.organization))

    if page.request.method != "POST":
        return render_profile(page, present())
    form = ProfileForm(page.request.POST)
    if save_edit(
        form,
        page.organization.id,
        present,
        lambda: set_billing_profile(
            organization=page.organization, actor=page.actor, changes=form.cleaned_data
        ),
    ):
        messages.success(
            page.request, gettext("The profile is saved. Your next invoice will use it.")
        )
        return redirect(page.url("billing_profile"))
    return render_profile(page, form)


def render_profile(page: PageContext, form: ProfileForm) -> HttpResponse:
    """Return the page with the form as it was submitted."""
    context = {"form": form, "profile": billing_profile(page.organization)}
    return page.render("console/billing/profile.html", context, status_of(form))
