"""The forms of an organization's single sign-on."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.forms import VersionedForm
from control.organizations.models import Membership
from control.sso.models import DOMAIN_MAX, GRANTABLE, URL_MAX, Protocol, ScimToken, SsoConnection
from control.versions import digest

OFF = {"autocomplete": "off"}
METADATA_MAX = 500_000


class ProviderForm(VersionedForm):
    """An identity provider. Either form replaces whatever is set up, so that both have its
    version."""

    provider_version = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self) -> None:
        """Leave the version out of what is saved."""
        super().clean()
        self.cleaned_data.pop("provider_version", None)

    @staticmethod
    def version_of_provider(connection: SsoConnection) -> dict[str, str]:
        """Return the initial value for a connection."""
        names = ("protocol", "issuer", "client_id", "sealed_secret", "metadata_url", "provider")
        return {"provider_version": digest([getattr(connection, name) for name in names])}


class OidcForm(ProviderForm):
    """An OpenID provider."""

    issuer = forms.CharField(
        label=_("Issuer"),
        max_length=URL_MAX,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "https://acme.okta.com"}),
    )
    client_id = forms.CharField(
        label=_("Client ID"), max_length=255, widget=forms.TextInput(attrs=OFF)
    )
    client_secret = forms.CharField(
        label=_("Client secret"),
        max_length=1000,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_("Stored encrypted and never shown. Leave empty to keep the current secret."),
    )

    @classmethod
    def of(cls, connection: SsoConnection) -> "OidcForm":
        """Return the form with the connection's values, empty for another protocol."""
        names = ("issuer", "client_id") if connection.protocol == Protocol.OIDC else ()
        values = {name: getattr(connection, name) for name in names}
        return cls(initial=values | cls.version_of_provider(connection))


class SamlForm(ProviderForm):
    """A SAML provider, by its metadata."""

    metadata_url = forms.CharField(
        label=_("Metadata URL"),
        max_length=URL_MAX,
        required=False,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "https://…/metadata"}),
    )
    metadata = forms.CharField(
        label=_("Or the metadata itself"),
        max_length=METADATA_MAX,
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
    )

    @classmethod
    def of(cls, connection: SsoConnection) -> "SamlForm":
        """Return the form with the connection's values."""
        values = {"metadata_url": connection.metadata_url}
        return cls(initial=values | cls.version_of_provider(connection))


class DomainForm(forms.Form):
    """A domain to verify."""

    name = forms.CharField(
        label=_("Domain"),
        max_length=DOMAIN_MAX,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "acme.com"}),
    )


class RolesForm(VersionedForm):
    """The mapping of the provider's groups to roles."""

    role_claim = forms.CharField(
        label=_("Claim or attribute"),
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={**OFF, "placeholder": "groups"}),
        help_text=_("Where a sign-in lists the person's groups. Groups from SCIM do not need it."),
    )
    role_map = forms.CharField(
        label=_("Groups and their roles"),
        max_length=20_000,
        required=False,
        widget=forms.Textarea(
            attrs={"rows": 4, "spellcheck": "false", "placeholder": "Engineering = developer"}
        ),
        help_text=_("One per line. A person in several groups gets the most powerful role."),
    )
    default_role = forms.ChoiceField(
        label=_("Everyone else"),
        required=False,
        choices=[("", _("No membership")), *((role.value, role.label) for role in GRANTABLE)],
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
                words = gettext(
                    "“%(line)s” is not valid. Write a group = one of these roles: %(roles)s."
                )
                raise forms.ValidationError(words % {"line": line.strip(), "roles": roles})
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


class ScimTransferForm(VersionedForm):
    """The transfer target of the keys of people whom SCIM suspends."""

    heir = forms.ChoiceField(label=_("API keys of suspended people"), required=False)

    def __init__(self, *args: Any, heirs: Sequence[Membership], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [
            ("", gettext("Revoke within a second")),
            *(
                (one.id, gettext("Transfer to %(email)s") % {"email": one.user.email})
                for one in heirs
            ),
        ]
        self.fields["heir"] = forms.ChoiceField(
            label=_("API keys of suspended people"), required=False, choices=choices
        )

    @classmethod
    def of(cls, token: ScimToken | None, heirs: Sequence[Membership]) -> "ScimTransferForm":
        """Return the form with the present transfer target."""
        return cls(heirs=heirs, initial={"heir": token.heir_id if token else ""})
