"""What allauth asks of us where an organization enforces SSO: by every way in, its people are sent
to their provider."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from control.accounts.models import User
from control.organizations.signup import SignupAdapter
from control.sso import selectors

CAME_BY_SSO = "came_by_sso"
"""On a request whose person a provider vouched for: the id of its organization."""


class SsoAccountAdapter(SignupAdapter):
    """Passwords, passkeys, links in mails and sign-ups end here for whom SSO is enforced."""

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return whose password it is, unless it would not help: then it is not looked at."""
        _refuse(credentials.get("email") or "")
        found: User | None = super().authenticate(request, **credentials)
        return found

    def clean_email(self, email: str) -> str:
        """Return an address typed to sign up, or to get a new password."""
        cleaned: str = super().clean_email(email)
        _refuse(cleaned)
        return cleaned

    def pre_login(self, request: HttpRequest, user: User, **hooks: Any) -> HttpResponse | None:
        """Let nobody in by another way than the one their organization enforces; another
        organization's provider is another way."""
        if selectors.enforcing(user) - {getattr(request, CAME_BY_SSO, "")}:
            messages.error(request, "Your organization lets people in with SSO only.")
            return redirect("sso_begin")
        response: HttpResponse | None = super().pre_login(request, user, **hooks)
        return response


def _refuse(email: str) -> None:
    """Raise ValidationError for an address of whose domain SSO is enforced, whether or not there is
    an account; operators, who put things right where a provider is broken, pass."""
    if selectors.is_enforced_for(email) and not selectors.is_operators(email):
        raise ValidationError(_words(email), code="sso_enforced")


def _words(email: str) -> str:
    return f"Addresses of {selectors.domain_of(email)} sign in with SSO only."
