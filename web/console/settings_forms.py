"""What members type into the settings, checked."""

from typing import Any

from django import forms

from control.accounts.models import NAME_MAX
from control.organizations.models import Organization, Project


class TitleForm(forms.Form):
    """The name of an organization or a project."""

    name = forms.CharField(max_length=NAME_MAX, label="Name")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].widget.attrs["autocomplete"] = "off"


class OriginsForm(forms.Form):
    """The origins whose pages may call with a project's keys, one a line."""

    allowed_origins = forms.CharField(
        label="Allowed origins, one a line",
        required=False,
        max_length=10_000,
        help_text="Such as https://app.example.com. Empty: no page may call.",
        widget=forms.Textarea(
            attrs={"rows": 3, "spellcheck": "false", "placeholder": "https://app.example.com"}
        ),
    )

    def __init__(self, data: Any = None, *, project: Project) -> None:
        super().__init__(data, initial={"allowed_origins": "\n".join(project.allowed_origins)})

    @property
    def origins(self) -> list[str]:
        """What was typed, line by line."""
        return str(self.cleaned_data["allowed_origins"]).split()


class NameTypedForm(forms.Form):
    """The name of what is about to end, typed by who means it."""

    confirmation = forms.CharField(label="", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, ends: Organization | Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ends = ends
        self.fields["confirmation"].label = f"Type “{ends.name}” to confirm"

    def clean_confirmation(self) -> str:
        """Return the name. Raises ValidationError when it is another."""
        typed = str(self.cleaned_data["confirmation"]).strip()
        if typed != self.ends.name:
            raise forms.ValidationError(f"That is not “{self.ends.name}”. Nothing was changed.")
        return typed
