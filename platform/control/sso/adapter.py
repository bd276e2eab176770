"""The allauth adapter that enforces SSO: every other way to sign in leads to the provider."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext

from control.accounts.models import User
from control.organizations.signup import SignupAdapter
from control.sso import selectors

CAME_BY_SSO = "came_by_sso"
"""Request attribute after a sign-in with SSO: the id of the provider's organization."""


class SsoAccountAdapter(SignupAdapter):
    """Refuses passwords, passkeys, emailed links and sign-ups where SSO is enforced."""

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return the user whose password it is. The password is not checked where SSO is enforced;
        raises ValidationError then."""
        _check_not_enforced(credentials.get("email") or "")
        user: User | None = super().authenticate(request, **credentials)
        return user

    def clean_email(self, email: str) -> str:
        """Return an address typed to sign up or to reset a password. Raises ValidationError."""
        cleaned: str = super().clean_email(email)
        _check_not_enforced(cleaned)
        return cleaned

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """Return the ways to reauthenticate besides SSO, without the password where SSO is
        enforced."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        if methods and selectors.enforcing(user):
            return [method for method in methods if method["id"] != "reauthenticate"]
        return methods

    def pre_login(self, request: HttpRequest, user: User, **hooks: Any) -> HttpResponse | None:
        """Redirect to SSO unless the user signed in with the provider that their organization
        enforces; another organization's provider does not count."""
        if selectors.enforcing(user) - {getattr(request, CAME_BY_SSO, "")}:
            messages.error(request, gettext("Your organization requires you to sign in with SSO."))
            return redirect("sso_begin")
        response: HttpResponse | None = super().pre_login(request, user, **hooks)
        return response


def _check_not_enforced(email: str) -> None:
    """Raise ValidationError if SSO is enforced for an address, whether or not it has an account.
    Operators are exempt, since they repair broken connections."""
    if selectors.is_enforced_for(email) and not selectors.is_operators(email):
        message = gettext("Addresses at %(domain)s must sign in with SSO.") % {
            "domain": selectors.domain_of(email)
        }
        raise ValidationError(message, code="sso_enforced")
