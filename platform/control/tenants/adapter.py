"""What allauth asks of us: a sign-up makes an organization in the same transaction, tries of
passwords are counted, devices are remembered, and people are told of what happens to an account."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.models import EmailAddress
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.utils import is_mfa_enabled
from django.contrib.auth import authenticate
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from control.actor import person
from control.error_pages import server_busy
from control.mail.services import send_mail, with_configured_host
from control.request_context import client_address
from control.tenants.models import NAME_MAX, User
from control.tenants.news import tell
from control.tenants.services import create_organization
from control.tenants.sign_in import tries, turns
from control.tenants.sign_in.deeds import record_wrong_password
from control.tenants.sign_in.devices import device_of, is_known_here, know_device
from control.tenants.sign_in.news import NEW_DEVICE, NEWS
from control.tenants.sign_in.verifying import VerifiedAddressStage
from control.tenants.sign_in.words import refusal

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
        with _turn(request, is_known=False), transaction.atomic():
            super().save_user(request, user, form, commit)
            if commit:
                _make_organization(user)
        return user

    def set_password(self, user: User, password: str) -> None:
        """Give a person another password."""
        with _turn(self.request, is_known=True):
            super().set_password(user, password)

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return whose password it is. A try is counted first, and not looked at where it is
        refused. Raises ValidationError, which says when the next one is."""
        email = credentials.get("email") or ""
        address, device = self.get_client_ip(request), device_of(request, email)
        is_known = is_known_here(request, email)
        taken = tries.take(tries.Try(email, address, device), time.time())
        if taken.is_refused:
            raise refusal("passwords", taken.wait_seconds)
        AuthenticationBackend.unstash_authenticated_user()
        try:
            with _turn(request, is_known=is_known):
                user: Any = authenticate(request, **credentials)
        except ImmediateHttpResponse:
            tries.give_back(taken)
            raise
        user = user or AuthenticationBackend.unstash_authenticated_user()
        if user is None:
            record_wrong_password(email)
            return None
        tries.give_back(taken)
        return user

    def send_account_already_exists_mail(self, email: str) -> None:
        """Tell who signs up twice, and take as long as the first time: the same is done for nobody,
        and undone."""
        with _turn(self.request, is_known=False), transaction.atomic():
            nobody = User(email=f"{uuid.uuid4()}@nobody.invalid")
            nobody.set_password(email)
            nobody.save()
            _make_organization(nobody)
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
        ours = f"{VerifiedAddressStage.__module__}.{VerifiedAddressStage.__name__}"
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
        know_device(request, response, user.email)
        tries.know_network(user.email, self.get_client_ip(request))
        if is_new and not hooks.get("signup"):
            tell(NEW_DEVICE, to=user.email, now=timezone.now(), request=request)
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
        news, now = NEWS[template_prefix], timezone.now()
        tell(news, to=email or user.email, now=now, request=self.request)


@contextmanager
def _turn(request: HttpRequest, *, is_known: bool) -> Iterator[None]:
    """Wait for a turn. Raises ImmediateHttpResponse, a 503, where none comes."""
    try:
        with turns.turn(is_known=is_known):
            yield
    except turns.Busy as error:
        raise ImmediateHttpResponse(server_busy(request)) from error


def _make_organization(user: User) -> None:
    create_organization(actor=person(user), name=organization_name(user.email), owner=user)


def organization_name(email: str) -> str:
    """Return what to call the organization of a person who just came."""
    return f"{email.partition('@')[0][: NAME_MAX - 2]}'s"
