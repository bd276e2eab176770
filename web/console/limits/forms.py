"""What members type to limit spending and to be told of it, checked."""

from collections.abc import Sequence
from typing import Any

from django import forms

from billing.alerts.defaults import PERCENTS
from control.limits.models import LimitPeriod
from serving.contract.money import parse_dollars

PERIODS = {
    LimitPeriod.DAY: "Day",
    LimitPeriod.WEEK: "Week, from Monday",
    LimitPeriod.MONTH: "Month",
}
ENFORCEMENTS = {
    "hard": "Hard: refuse beyond it",
    "soft": "Soft: only tell",
}
USUAL = ", ".join(map(str, PERCENTS))


class Dollars(forms.CharField):
    """An amount in dollars, as nanos; nothing is None."""

    widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})

    def clean(self, value: Any) -> int | None:
        """Return nanos. Raises ValidationError."""
        text = super().clean(value)
        try:
            return parse_dollars(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


class TermsForm(forms.Form):
    """How much, how strictly, and when to tell."""

    limit = Dollars(label="Limit in dollars")
    enforcement = forms.ChoiceField(
        label="At the limit", choices=list(ENFORCEMENTS.items()), initial="hard"
    )
    percents = forms.CharField(
        label="Tell at these percentages",
        required=False,
        initial=USUAL,
        max_length=80,
        help_text="By mail and webhook, each once a period. Empty: never.",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )

    def clean_percents(self) -> list[int]:
        """Return whole percentages. Raises ValidationError."""
        words = self.cleaned_data["percents"].replace("%", " ").replace(",", " ").split()
        if not all(word.isascii() and word.isdecimal() and len(word) < 5 for word in words):
            raise forms.ValidationError("Write whole numbers such as 50, 80, 100.")
        return [int(word) for word in words]

    @property
    def is_hard(self) -> bool:
        """Whether the limit shall refuse."""
        return bool(self.cleaned_data["enforcement"] == "hard")


class LimitForm(TermsForm):
    """A new limit: of whom, and by what period."""

    owner = forms.ChoiceField(label="Limit")
    period = forms.ChoiceField(label="Per", choices=list(PERIODS.items()))
    field_order = ("owner", "period", "limit", "enforcement", "percents")

    def __init__(self, *args: Any, owners: Sequence[tuple[str, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"] = forms.ChoiceField(label="Limit", choices=list(owners))
        self.order_fields(self.field_order)


class AlertsForm(forms.Form):
    """When to tell of the balance and of unusual spending."""

    low_balance = Dollars(
        label="Tell when the balance falls below, in dollars",
        required=False,
        help_text="Empty: no such amount.",
    )
    low_runway_days = forms.IntegerField(
        label="Tell when the balance lasts fewer days than",
        required=False,
        min_value=1,
        max_value=365,
        help_text="At the pace of the last seven days. Empty: never.",
    )
    unusual_factor = forms.IntegerField(
        label="Tell when spending is so many times the usual",
        required=False,
        min_value=2,
        max_value=100,
        help_text="A day, or its busiest hour, against the last 28 days' median. Empty: never.",
    )
