"""What members type to make, change, rotate and end API keys, checked."""

import secrets
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django import forms

from control.accounts.models import NAME_MAX
from control.api_keys.models import FORM_TOKEN_MAX, ApiKey, Scope
from control.organizations.models import Project
from serving.contract.money import parse_dollars

LIFETIMES = {"": "Never", "30": "In 30 days", "90": "In 90 days", "365": "In a year"}
OVERLAPS = {
    "24": "In 24 hours",
    "1": "In an hour",
    "168": "In 7 days",
    "720": "In 30 days",
    "0": "Now: whatever uses it is refused within a second",
}
"""When a replaced secret ends, by hours."""
SCOPES = {
    "inference": "Call models",
    "manage": "Use the management API",
    "inference manage": "Call models and use the management API",
}
"""What a key may do, by its scopes in their fixed order."""


class RightsForm(forms.Form):
    """What may be set of a key, at first and later."""

    name = forms.CharField(max_length=NAME_MAX, label="Name")
    scopes = forms.ChoiceField(label="May", choices=list(SCOPES.items()), initial=Scope.INFERENCE)
    models = forms.CharField(
        label="Models, one a line",
        required=False,
        max_length=20_000,
        help_text="Their names as requests spell them. Empty: every model.",
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "placeholder": "All"}),
    )
    networks = forms.CharField(
        label="Networks that may call, one a line",
        required=False,
        max_length=10_000,
        help_text="In CIDR form, such as 203.0.113.0/24 or 203.0.113.7/32. Empty: from anywhere.",
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "placeholder": "Anywhere"}),
    )

    def __init__(self, *args: Any, may_manage: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not may_manage:
            del self.fields["scopes"]

    def rights(self) -> dict[str, Any]:
        """Return what was set, as services take it; what the member may not set is left out."""
        typed = self.cleaned_data
        found = {"name": typed["name"], **{n: typed[n].split() or None for n in LISTS}}
        if "scopes" in typed:
            found["scopes"] = str(typed["scopes"]).split()
        return found


LISTS = ("models", "networks")


class KeyForm(RightsForm):
    """A new API key. `token` is the form's own: sent twice, it makes one key."""

    project = forms.ChoiceField(label="Project", help_text="Usage is counted there.")
    lifetime = forms.ChoiceField(label="Expires", choices=list(LIFETIMES.items()), required=False)
    limit = forms.CharField(
        label="Spend limit per month, in dollars",
        required=False,
        help_text="Optional. At the limit the key is refused until the next month (UTC).",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "placeholder": "No limit"}),
    )
    token = forms.CharField(required=False, max_length=FORM_TOKEN_MAX, widget=forms.HiddenInput)
    field_order = ("name", "project", "scopes", "lifetime", "limit", "models", "networks")

    def __init__(self, *args: Any, projects: Sequence[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(project.id, project.name) for project in projects]
        self.fields["project"] = forms.ChoiceField(
            label="Project", choices=choices, help_text="Usage is counted there."
        )
        self.fields["name"].widget.attrs |= {"placeholder": "My application", "autofocus": True}
        self.fields["token"].initial = secrets.token_urlsafe(24)
        self.order_fields(self.field_order)

    def clean_limit(self) -> int | None:
        """Return the limit in nanos."""
        text = self.cleaned_data["limit"]
        try:
            return parse_dollars(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def expires_at(self, now: datetime) -> datetime | None:
        """Return when the key ends."""
        days = self.cleaned_data["lifetime"]
        return now + timedelta(days=int(days)) if days else None


class EditForm(RightsForm):
    """What may be changed of a key."""

    expires_on = forms.DateField(
        label="Expires",
        required=False,
        help_text="At the beginning of this day (UTC). Empty: never.",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
    field_order = ("name", "scopes", "expires_on", "models", "networks")

    def __init__(self, *args: Any, key: ApiKey, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, initial=_initial(key))
        self.key = key
        self.order_fields(self.field_order)

    def rights(self) -> dict[str, Any]:
        """Return what was set; a day left as it was leaves the moment as it is."""
        return {**super().rights(), "expires_at": self._expires_at()}

    def _expires_at(self) -> datetime | None:
        day: date | None = self.cleaned_data["expires_on"]
        if self.key.expires_at is not None and day == _day(self.key.expires_at):
            return self.key.expires_at
        return None if day is None else datetime.combine(day, time(), UTC)


class RotateForm(forms.Form):
    """When the secret that is replaced ends. `last_four` are its own: sent twice, it is replaced
    once."""

    overlap = forms.ChoiceField(label="The secret in use ends", choices=list(OVERLAPS.items()))
    last_four = forms.CharField(max_length=4, widget=forms.HiddenInput)

    def ends_at(self, now: datetime) -> datetime:
        """Return when the replaced secret ends."""
        return now + timedelta(hours=int(self.cleaned_data["overlap"]))


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


def _initial(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": " ".join(key.scopes),
        "models": "\n".join(key.allowed_models or ()),
        "networks": "\n".join(key.allowed_networks or ()),
        "expires_on": None if key.expires_at is None else _day(key.expires_at),
    }


def _day(at: datetime) -> date:
    return at.astimezone(UTC).date()
