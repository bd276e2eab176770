"""What members type into the console's forms, checked."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms

from control.keys.models import ApiKey, Scope
from control.tenants.models import NAME_MAX, Project
from serving.contract.money import parse_dollars

LIFETIMES = {"": "Never", "30": "In 30 days", "90": "In 90 days", "365": "In a year"}
SCOPES = {
    "inference": "Call models",
    "manage": "Use the management API",
    "inference manage": "Call models and use the management API",
}
"""What a key may do, by its scopes in their fixed order."""


class NameForm(forms.Form):
    """A name for a key."""

    name = forms.CharField(max_length=NAME_MAX, label="Name")


class KeyForm(NameForm):
    """A new API key."""

    project = forms.ChoiceField(label="Project", help_text="Usage is counted there.")
    scopes = forms.ChoiceField(label="May", choices=list(SCOPES.items()), initial=Scope.INFERENCE)
    lifetime = forms.ChoiceField(label="Expires", choices=list(LIFETIMES.items()), required=False)
    limit = forms.CharField(
        label="Spend limit per month, in dollars",
        required=False,
        help_text="Optional. At the limit the key is refused until the next month (UTC).",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "placeholder": "No limit"}),
    )
    field_order = ("name", "project", "scopes", "lifetime", "limit")

    def __init__(
        self, *args: Any, projects: Sequence[Project], may_manage: bool, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if not may_manage:
            del self.fields["scopes"]
        choices = [(project.id, project.name) for project in projects]
        self.fields["project"] = forms.ChoiceField(
            label="Project", choices=choices, help_text="Usage is counted there."
        )
        self.fields["name"].widget.attrs |= {"placeholder": "My application", "autofocus": True}
        self.order_fields(self.field_order)

    def clean_limit(self) -> int | None:
        """Return the limit in nanos."""
        text = self.cleaned_data["limit"]
        try:
            return parse_dollars(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def scopes_chosen(self) -> list[str]:
        """Return the scopes of the one choice."""
        return str(self.cleaned_data.get("scopes", Scope.INFERENCE)).split()

    def expires_at(self, now: datetime) -> datetime | None:
        """Return when the key ends."""
        days = self.cleaned_data["lifetime"]
        return now + timedelta(days=int(days)) if days else None


class RevokeForm(forms.Form):
    """The key's name, typed by who means it."""

    confirmation = forms.CharField(label="", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, key: ApiKey, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key = key
        self.fields["confirmation"].label = f"Type “{key.name}” to confirm"

    def clean_confirmation(self) -> str:
        """Refuse anything but the name."""
        typed = str(self.cleaned_data["confirmation"])
        if typed.strip() != self.key.name.strip():
            raise forms.ValidationError(f"That is not “{self.key.name}”. The key was not revoked.")
        return typed
