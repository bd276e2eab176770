"""What allauth asks of us: a sign-up makes an organization in the same transaction."""

import uuid
from typing import Any

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from control.actor import person
from control.mail.links import rebased
from control.mail.services import send_mail
from control.tenants.models import NAME_MAX, User
from control.tenants.services import create_organization

MAILS = {
    "account/email/email_confirmation_signup": "confirm_address",
    "account/email/email_confirmation": "confirm_address",
    "account/email/password_reset_key": "reset_password",
    "account/email/account_already_exists": "account_exists",
    "account/email/unknown_account": "unknown_account",
}
"""Our mails by allauth's names for them."""
LINKS = ("activate_url", "password_reset_url", "signup_url")
"""What our mails take of allauth's context."""


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

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Decide a mail; each wish is a mail of its own. Its links lead to the configured host,
        whatever host the request named."""
        links = {name: rebased(context[name]) for name in LINKS if name in context}
        days = app_settings.EMAIL_CONFIRMATION_EXPIRE_DAYS
        with transaction.atomic():
            send_mail(
                template=MAILS[template_prefix],
                to=[email],
                context={"email": email, "days": days, **links},
                key=f"account:{uuid.uuid4()}",
                organization_id=None,
                now=timezone.now(),
            )


def organization_name(email: str) -> str:
    """Return what to call the organization of a person who just came."""
    return f"{email.partition('@')[0][: NAME_MAX - 2]}'s"
