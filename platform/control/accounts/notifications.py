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
from django.utils.dateformat import format as format_date
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.accounts.trusted_devices import device_name, link_token
from control.mail.services import absolute, send_mail

NEW_PASSWORD = _("If this was not you, someone else has your password: choose a new one now.")
CHECK_SIGN_IN = _("If this was not you, choose a new password now and check your sign-in methods.")


@dataclass(frozen=True, slots=True)
class SecurityEmail:
    """Content of a security email. `advice` says what to do, `label` is the button's text, and
    `page` its target: the name of a URL, or a path."""

    subject: str | Promise
    sentence: str | Promise
    advice: str | Promise
    page: str
    label: str | Promise


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
    facts = [[gettext("Time"), f"{format_date(now, 'd F Y, H:i')} UTC"]]
    if who:
        facts.append([gettext("By"), who])
    if request is not None:
        facts.append([gettext("Device"), device_name(request.META.get("HTTP_USER_AGENT", ""))])
        facts.append([gettext("IP address"), get_adapter().get_client_ip(request)])
    path = news.page if news.page.startswith("/") else reverse(news.page)
    with transaction.atomic():
        send_mail(
            template="security_email",
            to=[to],
            context={
                "email": to,
                "subject": str(news.subject),
                "sentence": str(news.sentence),
                "facts": facts,
                "advice": str(news.advice),
                "url": absolute(path),
                "label": str(news.label),
            },
            key=f"security_email:{uuid.uuid4()}",
            organization_id=organization_id,
            now=now,
        )


NEW_DEVICE = SecurityEmail(
    _("New sign-in to Penstock"),
    _("Your account was used to sign in on a device that we did not recognize."),
    _("If this was not you, end the session and choose a new password."),
    "usersessions_list",
    _("View your sessions"),
)
SECURITY_EMAILS = {
    "account/email/password_changed": SecurityEmail(
        _("Your password was changed"),
        _("The password of your account was changed, and you were signed out everywhere else."),
        NEW_PASSWORD,
        "account_reset_password",
        _("Choose a new password"),
    ),
    "account/email/password_reset": SecurityEmail(
        _("Your password was reset"),
        _(
            "The password of your account was reset with a link from an email, and you were signed"
            " out everywhere else."
        ),
        _(
            "If this was not you, someone can read your email: secure your mailbox first, then"
            " reset your password again."
        ),
        "account_reset_password",
        _("Choose a new password"),
    ),
    "account/email/password_set": SecurityEmail(
        _("A password was set"),
        _("Your account now has a password."),
        NEW_PASSWORD,
        "account_reset_password",
        _("Choose a new password"),
    ),
    "account/email/email_changed": SecurityEmail(
        _("Your email address was changed"),
        _("Your account now has another email address. This is the last email to this address."),
        _("If this was not you, reply to this email immediately."),
        "account_email",
        _("View your addresses"),
    ),
    "account/email/email_deleted": SecurityEmail(
        _("An email address was removed"),
        _("This address no longer belongs to your account."),
        _("If this was not you, choose a new password now."),
        "account_email",
        _("View your addresses"),
    ),
    "mfa/email/totp_activated": SecurityEmail(
        _("An authenticator app was added"),
        _("Your account now asks for a code from an authenticator app."),
        CHECK_SIGN_IN,
        "mfa_index",
        _("View your sign-in methods"),
    ),
    "mfa/email/totp_deactivated": SecurityEmail(
        _("The authenticator app was removed"),
        _("Your account no longer asks for a code from your authenticator app."),
        CHECK_SIGN_IN,
        "mfa_index",
        _("View your sign-in methods"),
    ),
    "mfa/email/recovery_codes_generated": SecurityEmail(
        _("New recovery codes were created"),
        _("Your account has new recovery codes. The old ones no longer work."),
        CHECK_SIGN_IN,
        "mfa_index",
        _("View your sign-in methods"),
    ),
    "mfa/email/webauthn_added": SecurityEmail(
        _("A passkey was added"),
        _("You can now sign in to your account with a new passkey, without a password."),
        CHECK_SIGN_IN,
        "mfa_index",
        _("View your sign-in methods"),
    ),
    "mfa/email/webauthn_removed": SecurityEmail(
        _("A passkey was removed"),
        _("A passkey was removed from your account. It can no longer be used to sign in."),
        CHECK_SIGN_IN,
        "mfa_index",
        _("View your sign-in methods"),
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
