"""The allauth adapter: it counts login attempts, remembers devices, emails people about changes to
their account, and requires a verified address of everybody who signed up themselves."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.models import EmailAddress
from allauth.account.stages import EmailVerificationStage
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.utils import is_mfa_enabled
from django.contrib.auth import authenticate
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from control.accounts import login_attempts
from control.accounts.login_attempts import too_many_attempts
from control.accounts.models import User
from control.accounts.notifications import NEW_DEVICE, SECURITY_EMAILS, notify
from control.accounts.signals import send_wrong_password
from control.accounts.trusted_devices import device_of, is_trusted_device, trust_device
from control.error_pages import server_busy
from control.mail.services import send_mail, with_configured_host
from control.request_context import client_address

MAILS = {
    "account/email/email_confirmation_signup": "confirm_address",
    "account/email/email_confirmation": "confirm_address",
    "account/email/password_reset_key": "reset_password",
    "account/email/account_already_exists": "account_exists",
    "account/email/unknown_account": "unknown_account",
}
"""Our email templates by allauth's template prefixes."""
LINKS = ("activate_url", "password_reset_url", "signup_url")
"""The keys of allauth's context that our emails use."""


class VerifiedEmailStage(EmailVerificationStage):
    """Verify the address of a person who signed up. Users created by the setup or an operator are
    trusted and skip the stage. A sign-up ends with the same page and an email whether or not the
    account existed."""

    def handle(self) -> tuple[Any, bool]:
        """Return the page that asks to check the inbox, if any, and whether to continue."""
        user = self.login.user
        if user is not None and not EmailAddress.objects.filter(user_id=user.pk).exists():
            EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
            return None, True
        response, continues = super().handle()
        return response, continues


class AccountAdapter(DefaultAccountAdapter):
    """Signs people up and in."""

    def after_signup(self, user: User) -> None:
        """Extend a sign-up in its transaction; the layers above override this."""

    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        """Save a new user and run `after_signup` in one transaction."""
        with _slot(request, is_known=False), transaction.atomic():
            super().save_user(request, user, form, commit)
            if commit:
                self.after_signup(user)
        return user

    def set_password(self, user: User, password: str) -> None:
        """Set a password, in a login slot: hashing is expensive."""
        with _slot(self.request, is_known=True):
            super().set_password(user, password)

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return the user whose password it is. The attempt is counted first; a refused attempt is
        not checked. Raises ValidationError with the time of the next attempt."""
        email = credentials.get("email") or ""
        address, device = self.get_client_ip(request), device_of(request, email)
        is_known = is_trusted_device(request, email)
        reservation = login_attempts.reserve(
            login_attempts.LoginAttempt(email, address, device), time.time()
        )
        if reservation.is_refused:
            raise too_many_attempts("passwords", reservation.wait_seconds)
        AuthenticationBackend.unstash_authenticated_user()
        try:
            with _slot(request, is_known=is_known):
                user: Any = authenticate(request, **credentials)
        except ImmediateHttpResponse:
            login_attempts.release(reservation)
            raise
        user = user or AuthenticationBackend.unstash_authenticated_user()
        if user is None:
            send_wrong_password(email)
            return None
        login_attempts.release(reservation)
        return user

    def send_account_already_exists_mail(self, email: str) -> None:
        """Email a person who signs up again. The same work is done for a dummy user and rolled
        back, so that it takes as long as a first sign-up."""
        with _slot(self.request, is_known=False), transaction.atomic():
            dummy = User(email=f"{uuid.uuid4()}@nobody.invalid")
            dummy.set_password(email)
            dummy.save()
            self.after_signup(dummy)
            transaction.set_rollback(True)
        super().send_account_already_exists_mail(email)

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client's address. Raises PermissionDenied if it is unknown."""
        address = client_address(request)
        if address is None:
            raise PermissionDenied("The client's address is not known.")
        return str(address)

    def is_safe_url(self, url: str | None) -> bool:
        """Return whether a redirect to the URL is allowed: only to pages of this console."""
        return url_has_allowed_host_and_scheme(url, allowed_hosts=None)

    def get_login_stages(self) -> list[str]:
        """Return allauth's login stages, with ours for email verification."""
        ours = f"{VerifiedEmailStage.__module__}.{VerifiedEmailStage.__name__}"
        stages: list[str] = super().get_login_stages()
        return [ours if stage.endswith(".EmailVerificationStage") else stage for stage in stages]

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """Return the ways to reauthenticate. The password is left out if a second factor is set up,
        so that a session begun with a stolen password cannot remove the factor."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        if user.is_authenticated and is_mfa_enabled(user):
            return [method for method in methods if method["id"] != "reauthenticate"]
        return methods

    def post_login(self, request: HttpRequest, user: User, **hooks: Any) -> HttpResponse:
        """Trust the device and the network; email the person if the device was unknown."""
        response = super().post_login(request, user, **hooks)
        is_new = device_of(request, user.email) is None
        trust_device(request, response, user.email)
        login_attempts.trust_network(user.email, self.get_client_ip(request))
        if is_new and not hooks.get("signup"):
            notify(NEW_DEVICE, to=user.email, now=timezone.now(), request=request)
        return response

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Verify an address and run its signal receivers in one transaction."""
        with transaction.atomic():
            return bool(super().confirm_email(request, email_address))

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Store an email; each call sends one. Its links lead to the configured host, whatever host
        the request named."""
        links = {name: with_configured_host(context[name]) for name in LINKS if name in context}
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

    def send_notification_mail(
        self,
        template_prefix: str,
        user: User,
        context: dict[str, Any] | None = None,
        email: str | None = None,
    ) -> None:
        """Email a person about a change to their account."""
        content, now = SECURITY_EMAILS[template_prefix], timezone.now()
        notify(content, to=email or user.email, now=now, request=self.request)


@contextmanager
def _slot(request: HttpRequest, *, is_known: bool) -> Iterator[None]:
    """Wait for a login slot. Raises ImmediateHttpResponse (503) if none becomes free."""
    try:
        with login_attempts.login_slot(is_known=is_known):
            yield
    except login_attempts.ConcurrencyLimitExceeded as error:
        raise ImmediateHttpResponse(server_busy(request)) from error
