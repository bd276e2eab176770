"""The forms of an organization's single sign-on."""

from collections.abc import Sequence
from typing import Any

from django import forms

from control.organizations.models import Membership
from control.sso.models import DOMAIN_MAX, GRANTABLE, URL_MAX, SsoConnection

OFF = {"autocomplete": "off"}
METADATA_MAX = 500_000


class OidcForm(forms.Form):
    """An OpenID provider."""

    issuer = forms.CharField(
        label="Issuer",
        max_length=URL_MAX,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "https://acme.okta.com"}),
    )
    client_id = forms.CharField(
        label="Client id", max_length=255, widget=forms.TextInput(attrs=OFF)
    )
    client_secret = forms.CharField(
        label="Client secret",
        max_length=1000,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Kept encrypted and never shown. Left empty, the one you gave before stays.",
    )


class SamlForm(forms.Form):
    """A SAML provider, by its metadata."""

    metadata_url = forms.CharField(
        label="Metadata address",
        max_length=URL_MAX,
        required=False,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "https://…/metadata"}),
    )
    metadata = forms.CharField(
        label="Or the metadata itself",
        max_length=METADATA_MAX,
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
    )


class DomainForm(forms.Form):
    """A domain to verify."""

    name = forms.CharField(
        label="Domain",
        max_length=DOMAIN_MAX,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "acme.com"}),
    )


class RolesForm(forms.Form):
    """The mapping of the provider's groups to roles."""

    role_claim = forms.CharField(
        label="Claim or attribute",
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "groups"}),
        help_text="What of a sign-in names the groups. SCIM's groups count without it.",
    )
    role_map = forms.CharField(
        label="Groups and their roles",
        max_length=20_000,
        required=False,
        widget=forms.Textarea(
            attrs={"rows": 4, "spellcheck": "false", "placeholder": "Engineering = developer"}
        ),
        help_text="One on each line. Who is in several gets the most powerful.",
    )
    default_role = forms.ChoiceField(
        label="Everybody else",
        required=False,
        choices=[("", "No seat"), *((role.value, role.label) for role in GRANTABLE)],
    )

    def clean_role_map(self) -> dict[str, str]:
        """Return roles by group. Raises ValidationError naming the first invalid line."""
        roles_by_group = {}
        for line in self.cleaned_data["role_map"].splitlines():
            if not line.strip():
                continue
            group, equals, role = line.rpartition("=")
            if not equals or not group.strip() or role.strip().lower() not in GRANTABLE:
                roles = ", ".join(GRANTABLE)
                raise forms.ValidationError(f"“{line.strip()}”: wanted a group = one of {roles}.")
            roles_by_group[group.strip()] = role.strip().lower()
        return roles_by_group

    @classmethod
    def of(cls, connection: SsoConnection) -> "RolesForm":
        """Return the form with the connection's values."""
        lines = [f"{group} = {role}" for group, role in connection.role_map.items()]
        return cls(
            initial={
                "role_claim": connection.role_claim,
                "role_map": "\n".join(lines),
                "default_role": connection.default_role,
            }
        )


class ScimTransferForm(forms.Form):
    """The transfer target of the keys of people whom SCIM suspends."""

    heir = forms.ChoiceField(label="API keys of suspended people", required=False)

    def __init__(self, *args: Any, heirs: Sequence[Membership], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [
            ("", "End within a second"),
            *((one.id, f"Go on, as those of {one.user.email}") for one in heirs),
        ]
        self.fields["heir"] = forms.ChoiceField(
            label="API keys of suspended people", required=False, choices=choices
        )
