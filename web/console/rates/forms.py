"""What members type to limit a project or a key, checked."""

from collections.abc import Sequence
from typing import Any

from django import forms

from control.limits.models import LIMIT_MAX, RATE_LIMIT_FIELDS

LABELS = {
    "requests_per_minute": "Requests per minute",
    "input_tokens_per_minute": "Input tokens per minute",
    "output_tokens_per_minute": "Output tokens per minute",
    "concurrent_requests": "Requests at once",
}


def figure(name: str) -> forms.IntegerField:
    """Return the field of one limit; nothing typed is none."""
    return forms.IntegerField(
        label=LABELS[name], required=False, min_value=1, max_value=LIMIT_MAX,
        widget=forms.NumberInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip


class RatesForm(forms.Form):
    """The four limits of a project or a key."""

    owner = forms.ChoiceField(label="Limit")
    requests_per_minute = figure("requests_per_minute")
    input_tokens_per_minute = figure("input_tokens_per_minute")
    output_tokens_per_minute = figure("output_tokens_per_minute")
    concurrent_requests = figure("concurrent_requests")

    def __init__(self, *args: Any, owners: Sequence[tuple[str, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"] = forms.ChoiceField(label="Limit", choices=list(owners))
        self.fields["input_tokens_per_minute"].help_text = "Cached ones do not count."
        self.fields["concurrent_requests"].help_text = "Empty: no limit of its own."

    @property
    def figures(self) -> dict[str, int | None]:
        """What was typed, by the contract's names."""
        return {name: self.cleaned_data[name] for name in RATE_LIMIT_FIELDS}
