"""Security emails: they report a change to an account, so that its owner notices if somebody else
made it. They are stored in the transaction of the change and share one template."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from allauth.account.adapter import get_adapter
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from control.accounts.trusted_devices import device_name, link_token
from control.mail.services import absolute, send_mail

CHANGE = "If that was not you, somebody else has your password: choose another one now."
FACTORS = "If that was not you, choose another password now and look through your ways to sign in."


@dataclass(frozen=True, slots=True)
class SecurityEmail:
    """Content of a security email. `advice` says what to do, `label` is the button's text, and
    `page` its target: the name of a URL, or a path."""

    subject: str
    sentence: str
    advice: str
    page: str
    label: str


def notify(
    news: SecurityEmail,
    *,
    to: str,
    now: datetime,
    request: HttpRequest | None = None,
    who: str = "",
    organization_id: str | None = None,
) -> None:
    """Send a security email. `who` names another person who made the change; `request` is the one
    that made it, if it came from the person's own session."""
    facts = [["When", f"{now:%d %B %Y, %H:%M} UTC"]]
    if who:
        facts.append(["By", who])
    if request is not None:
        facts.append(["Device", device_name(request.META.get("HTTP_USER_AGENT", ""))])
        facts.append(["Address", get_adapter().get_client_ip(request)])
    path = news.page if news.page.startswith("/") else reverse(news.page)
    with transaction.atomic():
        send_mail(
            template="security_email",
            to=[to],
            context={
                "email": to,
                "subject": news.subject,
                "sentence": news.sentence,
                "facts": facts,
                "advice": news.advice,
                "url": absolute(path),
                "label": news.label,
            },
            key=f"security_email:{uuid.uuid4()}",
            organization_id=organization_id,
            now=now,
        )


NEW_DEVICE = SecurityEmail(
    "New sign-in to Penstock",
    "Your account was signed in to on a device that we did not know.",
    "If that was not you, end the session and choose another password.",
    "usersessions_list",
    "See your sessions",
)
SECURITY_EMAILS = {
    "account/email/password_changed": SecurityEmail(
        "Your password was changed",
        "The password of your account was changed. Everywhere else you were signed out.",
        CHANGE,
        "account_reset_password",
        "Choose another password",
    ),
    "account/email/password_reset": SecurityEmail(
        "Your password was reset",
        "The password of your account was reset with a link from your mail. Everywhere else you"
        " were signed out.",
        "If that was not you, somebody reads your mail: secure it first, then reset it again.",
        "account_reset_password",
        "Choose another password",
    ),
    "account/email/password_set": SecurityEmail(
        "A password was set",
        "Your account has a password now.",
        CHANGE,
        "account_reset_password",
        "Choose another password",
    ),
    "account/email/email_changed": SecurityEmail(
        "Your e-mail address was changed",
        "Your account has another e-mail address now. This is the last mail to this one.",
        "If that was not you, answer this mail at once.",
        "account_email",
        "See your addresses",
    ),
    "account/email/email_deleted": SecurityEmail(
        "An e-mail address was removed",
        "This address belongs to your account no more.",
        "If that was not you, choose another password now.",
        "account_email",
        "See your addresses",
    ),
    "mfa/email/totp_activated": SecurityEmail(
        "An authenticator app was added",
        "Your account is asked for a code of an authenticator app from now on.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/totp_deactivated": SecurityEmail(
        "The authenticator app was removed",
        "Your account is asked for a code of your app no more.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/recovery_codes_generated": SecurityEmail(
        "New recovery codes were made",
        "Your account has new recovery codes; the old ones work no more.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/webauthn_added": SecurityEmail(
        "A passkey was added",
        "A passkey opens your account from now on, without a password.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
    "mfa/email/webauthn_removed": SecurityEmail(
        "A passkey was removed",
        "A passkey opens your account no more.",
        FACTORS,
        "mfa_index",
        "See your ways to sign in",
    ),
}
"""Content by allauth's template prefix."""


def mail_device_link(request: HttpRequest, email: str, *, is_account: bool) -> None:
    """Email the link that trusts a device, or the message that there is no account. Both take the
    same time, so that the caller cannot learn which it was."""
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
