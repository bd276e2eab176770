"""Hooks of allauth's: attempts are counted, devices are remembered, people are mailed what happens
to their account, and whoever signed up by themselves verifies their address."""

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
"""Our mails by allauth's names for them."""
LINKS = ("activate_url", "password_reset_url", "signup_url")
"""What our mails take of allauth's context."""


class VerifiedEmailStage(EmailVerificationStage):
    """allauth's stage, but for people whom the set-up or an operator made, who vouches for their
    addresses. A sign-up so ends with the same page and a mail, whether there was an account or
    not."""

    def handle(self) -> tuple[Any, bool]:
        """Return the page that says to look into the mail, or None to go on."""
        user = self.login.user
        if user is not None and not EmailAddress.objects.filter(user_id=user.pk).exists():
            EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
            return None, True
        response, goes_on = super().handle()
        return response, goes_on


class AccountAdapter(DefaultAccountAdapter):
    """Signs people up and in."""

    def after_signup(self, user: User) -> None:
        """Do what belongs to a sign-up, in its transaction: the layers above override this."""

    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        """Save a new user with all that belongs to a sign-up, or nothing."""
        with _slot(request, is_known=False), transaction.atomic():
            super().save_user(request, user, form, commit)
            if commit:
                self.after_signup(user)
        return user

    def set_password(self, user: User, password: str) -> None:
        """Give a person another password."""
        with _slot(self.request, is_known=True):
            super().set_password(user, password)

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return whose password it is. A try is counted first, and not looked at where it is
        refused. Raises ValidationError, which says when the next one is."""
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
        """Tell who signs up twice, and take as long as the first time: the same is done for nobody,
        and undone."""
        with _slot(self.request, is_known=False), transaction.atomic():
            nobody = User(email=f"{uuid.uuid4()}@nobody.invalid")
            nobody.set_password(email)
            nobody.save()
            self.after_signup(nobody)
            transaction.set_rollback(True)
        super().send_account_already_exists_mail(email)

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client's address. Raises PermissionDenied where there is none."""
        address = client_address(request)
        if address is None:
            raise PermissionDenied("The client's address is not known.")
        return str(address)

    def is_safe_url(self, url: str | None) -> bool:
        """Tell whether a person may be sent on there: to pages of this console alone."""
        return url_has_allowed_host_and_scheme(url, allowed_hosts=None)

    def get_login_stages(self) -> list[str]:
        """Return what is asked on the way in."""
        ours = f"{VerifiedEmailStage.__module__}.{VerifiedEmailStage.__name__}"
        stages: list[str] = super().get_login_stages()
        return [ours if each.endswith(".EmailVerificationStage") else each for each in stages]

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """Return how a person proves again who they are: with a factor where one is set up, so that
        a session begun with a stolen password takes none away."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        if user.is_authenticated and is_mfa_enabled(user):
            return [each for each in methods if each["id"] != "reauthenticate"]
        return methods

    def post_login(self, request: HttpRequest, user: User, **hooks: Any) -> HttpResponse:
        """Remember the device and the network; mail a person whose device nobody knew."""
        response = super().post_login(request, user, **hooks)
        is_new = device_of(request, user.email) is None
        trust_device(request, response, user.email)
        login_attempts.trust_network(user.email, self.get_client_ip(request))
        if is_new and not hooks.get("signup"):
            notify(NEW_DEVICE, to=user.email, now=timezone.now(), request=request)
        return response

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Verify an address, and do what hangs on it in the same transaction."""
        with transaction.atomic():
            return bool(super().confirm_email(request, email_address))

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Decide a mail; each wish is a mail of its own. Its links lead to the configured host,
        whatever host the request named."""
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
        """Tell a person what happened to their account."""
        news, now = SECURITY_EMAILS[template_prefix], timezone.now()
        notify(news, to=email or user.email, now=now, request=self.request)


@contextmanager
def _slot(request: HttpRequest, *, is_known: bool) -> Iterator[None]:
    """Wait for a login slot. Raises ImmediateHttpResponse, a 503, where none comes."""
    try:
        with login_attempts.login_slot(is_known=is_known):
            yield
    except login_attempts.ConcurrencyLimitExceeded as error:
        raise ImmediateHttpResponse(server_busy(request)) from error
