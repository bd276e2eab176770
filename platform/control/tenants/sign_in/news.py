"""What a person is told by mail of how their account is opened: each of these, did they not do it
themselves, is how they learn that somebody else did."""

import uuid

from allauth.account.adapter import get_adapter
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from control.mail.services import absolute, send_mail
from control.tenants.news import News
from control.tenants.sign_in.devices import link_token
from control.tenants.sign_in.words import device_name

CHANGE = "If that was not you, somebody else has your password: choose another one now."
FACTORS = "If that was not you, choose another password now and look through your ways to sign in."
NEW_DEVICE = News(
    "New sign-in to Penstock",
    "Your account was signed in to on a device that we did not know.",
    "If that was not you, end the session and choose another password.",
    "usersessions_list",
    "See your sessions",
)
NEWS = {
    "account/email/password_changed": News(
        "Your password was changed",
        "The password of your account was changed. Everywhere else you were signed out.",
        CHANGE,
        "account_reset_password",
        "Choose another password",
    ),
    "account/email/password_reset": News(
        "Your password was reset",
        "The password of your account was reset with a link from your mail. Everywhere else you"
        " were signed out.",
        "If that was not you, somebody reads your mail: secure it first, then reset it again.",
        "account_reset_password",
        "Choose another password",
    ),
    "account/email/password_set": News(
        "A password was set",
        "Your account has a password now.",
        CHANGE,
        "account_reset_password",
        "Choose another password",
    ),
    "account/email/email_changed": News(
        "Your e-mail address was changed",
        "Your account has another e-mail address now. This is the last mail to this one.",
        "If that was not you, answer this mail at once.",
        "account_email",
        "See your addresses",
    ),
    "account/email/email_deleted": News(
        "An e-mail address was removed",
        "This address belongs to your account no more.",
        "If that was not you, choose another password now.",
        "account_email",
        "See your addresses",
    ),
    "mfa/email/totp_activated": News(
        "An authenticator app was added",
        "Your account is asked for a code of an authenticator app from now on.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/totp_deactivated": News(
        "The authenticator app was removed",
        "Your account is asked for a code of your app no more.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/recovery_codes_generated": News(
        "New recovery codes were made",
        "Your account has new recovery codes; the old ones work no more.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/webauthn_added": News(
        "A passkey was added",
        "A passkey opens your account from now on, without a password.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/webauthn_removed": News(
        "A passkey was removed",
        "A passkey opens your account no more.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
}
"""By allauth's names for its mails."""


def mail_device_link(request: HttpRequest, email: str, *, is_account: bool) -> None:
    """Mail the link that makes a device known to an account, or that there is none: both take as
    long, so that nobody learns which it was."""
    url = reverse("known_device", args=[link_token(email)])
    with transaction.atomic():
        send_mail(
            template="device_link" if is_account else "unknown_account",
            to=[email],
            context={
                "email": email,
                "url": absolute(url),
                "signup_url": absolute(reverse("account_signup")),
                "device": device_name(request.META.get("HTTP_USER_AGENT", "")),
                "address": get_adapter().get_client_ip(request),
            },
            key=f"device:{uuid.uuid4()}",
            organization_id=None,
            now=timezone.now(),
        )
