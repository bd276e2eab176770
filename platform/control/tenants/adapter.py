"""What allauth asks of us: a sign-up makes an organization in the same transaction."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from django.db import transaction
from django.http import HttpRequest

from control.tenants.models import NAME_MAX, User
from control.tenants.permissions import person
from control.tenants.services import create_organization


class AccountAdapter(DefaultAccountAdapter):
    """Signs people up: user, organization, default project and owner's seat, all or nothing."""

    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        """Save a new user with an organization of their own, which they may rename."""
        with transaction.atomic():
            super().save_user(request, user, form, commit)
            if commit:
                create_organization(
                    actor=person(user), name=organization_name(user.email), owner=user
                )
        return user

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Verify an address, and do what hangs on it in the same transaction."""
        with transaction.atomic():
            return bool(super().confirm_email(request, email_address))


def organization_name(email: str) -> str:
    """Return what to call the organization of a person who just came."""
    return f"{email.partition('@')[0][: NAME_MAX - 2]}'s"
