"""What members type into the settings, checked."""

from typing import Any

from django import forms

from control.tenants.models import Project


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
        initial = {"allowed_origins": "\n".join(project.allowed_origins)}
        super().__init__(data, initial=initial, auto_id=f"{project.id}_%s")
        self.project = project

    @property
    def origins(self) -> list[str]:
        """What was typed, line by line."""
        return str(self.cleaned_data["allowed_origins"]).split()
