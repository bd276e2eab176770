"""The forms of the Billing page. Amounts are entered in dollars and kept in cents."""

import uuid
from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.payments.models import AutoTopUp, PaymentMethod
from billing.payments.models.codes import CODE_MAX
from billing.payments.services.asking import TOP_UP_MAX_CENTS, TOP_UP_MIN_CENTS
from billing.payments.services.automatic import CAP_MAX_CENTS
from control.forms import REASON_MAX, VersionedForm, clean_dollars
from serving.contract.money import CENT_NANOS

CHOICES = (1_000, 2_500, 5_000, 10_000, 25_000)
"""Suggested amounts, in cents."""
OTHER = "other"
NEW_METHOD = "new"
DEFAULT_CENTS = 5_000


def new_form_id() -> str:
    """Return the id of a new form: submitted twice, it takes effect once."""
    return str(uuid.uuid4())


class CentsField(forms.CharField):
    """An amount in dollars, in whole cents and within bounds."""

    def __init__(self, *, least: int, most: int, **options: Any) -> None:
        options.setdefault("widget", forms.TextInput(attrs={"inputmode": "decimal"}))
        super().__init__(**options)
        self.least, self.most = least, most

    def prepare_value(self, value: Any) -> Any:
        """Return what the text box shows."""
        return f"{value / 100:.2f}".removesuffix(".00") if isinstance(value, int) else value

    def clean(self, value: Any) -> int | None:
        """Return cents. Raises ValidationError."""
        text = super().clean(value)
        if not text:
            return None
        cents, rest = divmod(clean_dollars(text), CENT_NANOS)
        if rest or not self.least <= cents <= self.most:
            words = gettext("Enter an amount from %(least)s to %(most)s, in whole cents.")
            least, most = f"${self.least / 100:,.2f}", f"${self.most / 100:,.2f}"
            raise forms.ValidationError(words % {"least": least, "most": most})
        return cents


class TopUpForm(forms.Form):
    """The amount and payment method of a top-up."""

    choice = forms.ChoiceField(
        label=_("Amount"),
        choices=[*((str(c), f"${c // 100}") for c in CHOICES), (OTHER, _("Other"))],
        initial=str(DEFAULT_CENTS),
        widget=forms.RadioSelect,
    )
    other = CentsField(
        label=_("Other amount, in dollars"),
        required=False,
        least=TOP_UP_MIN_CENTS,
        most=TOP_UP_MAX_CENTS,
    )
    method = forms.ChoiceField(label=_("Pay with"))
    form_id = forms.CharField(widget=forms.HiddenInput, max_length=64)
    agreed_cents = forms.IntegerField(widget=forms.HiddenInput, required=False)
    """The total, including tax, that was shown next to the button."""

    def __init__(self, *args: Any, methods: Sequence[PaymentMethod], **kwargs: Any) -> None:
        kwargs["initial"] = {"form_id": new_form_id(), **kwargs.get("initial", {})}
        super().__init__(*args, **kwargs)
        saved = [(method.id, str(method)) for method in methods]
        if saved:
            new = gettext("A new card or bank account, on Stripe's page")
        else:
            new = gettext("Card or bank account, on Stripe's page")
        self.fields["method"] = forms.ChoiceField(
            label=_("Pay with"), choices=[*saved, (NEW_METHOD, new)]
        )

    def clean(self) -> dict[str, Any]:
        """Put the chosen amount into `other`."""
        cleaned = super().clean() or {}
        is_other = cleaned.get("choice") == OTHER
        if is_other and cleaned.get("other") is None and "other" not in self.errors:
            self.add_error("other", gettext("Enter an amount."))
        if not is_other and "choice" in cleaned:
            cleaned["other"] = int(cleaned["choice"])
        return cleaned

    @property
    def amount_cents(self) -> int:
        """The amount of a valid form."""
        return int(self.cleaned_data["other"])

    def agrees_to(self, total_cents: int) -> bool:
        """Return whether this total was shown, or Stripe's page will show it."""
        is_on_stripes_page = self.cleaned_data["method"] == NEW_METHOD
        return is_on_stripes_page or self.cleaned_data["agreed_cents"] == total_cents


class InvoiceRequestForm(forms.Form):
    """The amount of credit that an invoice is asked for."""

    amount_cents = CentsField(
        label=_("Amount, in dollars"), least=TOP_UP_MIN_CENTS, most=CAP_MAX_CENTS
    )
    note = forms.CharField(
        label=_("Note"),
        required=False,
        max_length=REASON_MAX,
        help_text=_("Such as your purchase order number."),
    )
    form_id = forms.CharField(widget=forms.HiddenInput, max_length=64, initial=new_form_id)


class AutoTopUpForm(VersionedForm):
    """The settings of automatic top-ups."""

    is_on = forms.BooleanField(label=_("Recharge automatically"), required=False)
    threshold_cents = CentsField(
        label=_("When the balance falls below, in dollars"), least=0, most=TOP_UP_MAX_CENTS
    )
    amount_cents = CentsField(
        label=_("Add this amount, in dollars"), least=TOP_UP_MIN_CENTS, most=TOP_UP_MAX_CENTS
    )
    monthly_cap_cents = CentsField(
        label=_("At most per month, in dollars"),
        least=TOP_UP_MIN_CENTS,
        most=CAP_MAX_CENTS,
        help_text=_(
            "Per UTC month, before tax. Two declined payments in a row stop auto-recharge until you"
            " save again."
        ),
    )

    @classmethod
    def of(cls, settings: AutoTopUp | None) -> "AutoTopUpForm":
        """Return the form with the settings, or with suggested values."""
        if settings is None:
            return cls(
                initial={
                    "threshold_cents": 1_000,
                    "amount_cents": 5_000,
                    "monthly_cap_cents": 20_000,
                }
            )
        names = ("is_on", "threshold_cents", "amount_cents", "monthly_cap_cents")
        return cls(initial={name: getattr(settings, name) for name in names})


class PromoCodeForm(forms.Form):
    """A promotional code."""

    code = forms.CharField(
        label=_("Promotional code"),
        max_length=CODE_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "characters"}),
    )
