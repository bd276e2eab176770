"""What members type into the forms of webhooks, checked."""

from typing import Any

from django import forms

from control.egress import URL_MAX
from control.webhooks.models import DESCRIPTION_MAX, EVENT_TYPES, WebhookEndpoint


class EndpointForm(forms.Form):
    """An endpoint: where to, and what it is told."""

    url = forms.CharField(
        label="Address",
        max_length=URL_MAX,
        help_text="An https:// address of yours that the internet reaches.",
        widget=forms.TextInput(
            attrs={"inputmode": "url", "placeholder": "https://example.com/hooks"}
        ),
    )
    description = forms.CharField(
        label="Description", max_length=DESCRIPTION_MAX, required=False, help_text="Optional."
    )
    kinds = forms.MultipleChoiceField(
        label="Tell it when", choices=[(kind, kind) for kind in EVENT_TYPES]
    )

    @property
    def choices(self) -> list[dict[str, Any]]:
        """The kinds, what they mean, and which are chosen."""
        chosen = self["kinds"].value() or []
        return [
            {"kind": kind, "meaning": meaning, "is_chosen": kind in chosen}
            for kind, meaning in EVENT_TYPES.items()
        ]


class DeleteForm(forms.Form):
    """The endpoint's host, typed by who means it."""

    confirmation = forms.CharField(widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, endpoint: WebhookEndpoint, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.endpoint = endpoint
        self.fields["confirmation"].label = f"Type “{endpoint.host}” to confirm"

    def clean_confirmation(self) -> str:
        """Refuse anything but the host."""
        typed = str(self.cleaned_data["confirmation"])
        if typed.strip() != self.endpoint.host:
            words = f"That is not “{self.endpoint.host}”. The endpoint was not deleted."
            raise forms.ValidationError(words)
        return typed
