"""What is typed to invite people, and to change or end their seats, checked."""

from collections.abc import Sequence
from typing import Any

from django import forms

from control.accounts.models import EMAIL_MAX
from control.organizations.models import Membership
from control.permissions import Role

ROLES = {
    Role.OWNER: "everything, the organization's name and its owners included",
    Role.ADMIN: "everything but the organization's name and its owners",
    Role.DEVELOPER: "make API keys and see usage; no money",
    Role.BILLING: "see and pay money, set limits; no keys",
    Role.VIEWER: "look at usage; no keys, no money",
}
"""What each role may do, in words."""


def role_choices(*, may_manage_owners: bool) -> list[tuple[str, str]]:
    """Return the roles that somebody may give, each with what it may do."""
    return [
        (role.value, f"{role.label}: {may}")
        for role, may in ROLES.items()
        if may_manage_owners or role != Role.OWNER
    ]


class RoleForm(forms.Form):
    """A role."""

    role = forms.ChoiceField(label="Role")

    def __init__(self, *args: Any, choices: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"] = forms.ChoiceField(label="Role", choices=choices)


class InviteForm(RoleForm):
    """A seat for somebody."""

    email = forms.EmailField(
        label="E-mail address",
        max_length=EMAIL_MAX,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "placeholder": "ada@example.com"}),
    )
    field_order = ("email", "role")


class RemoveForm(forms.Form):
    """The member's address, typed by who means it, and who takes their keys."""

    keys_to = forms.ChoiceField(label="Their API keys", required=False)
    confirmation = forms.CharField(label="", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(
        self, *args: Any, seat: Membership, heirs: Sequence[Membership], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.seat = seat
        choices = [("", "End within a second"), *((one.id, _passed(one)) for one in heirs)]
        self.fields["keys_to"] = forms.ChoiceField(
            label="Their API keys",
            choices=choices,
            required=False,
            help_text="Keys of the management API end where the other may not make such.",
        )
        self.fields["confirmation"].label = f"Type {seat.user.email} to confirm"
        if not heirs:
            del self.fields["keys_to"]

    def clean_confirmation(self) -> str:
        """Return the address. Raises ValidationError when it is another."""
        typed = str(self.cleaned_data["confirmation"]).strip().lower()
        if typed != self.seat.user.email:
            raise forms.ValidationError(f"This is not {self.seat.user.email}.")
        return typed


def _passed(seat: Membership) -> str:
    return f"Go on, as those of {seat.user.email}"
