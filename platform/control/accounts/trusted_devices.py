"""Devices that an account signed in on, remembered in a signed cookie. The cookie grants no access;
it keeps attempts from elsewhere from blocking the owner's own device (decision 0024)."""

import re
import secrets
from typing import Any

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.translation import gettext

from control.accounts.login_attempts import account_of, is_trusted_network

COOKIE = "penstock_device"
AGE_SECONDS = 365 * 24 * 3600
ACCOUNTS_MAX = 5
"""Per browser; the oldest account is dropped."""
LINK_SECONDS = 3600
COOKIE_SALT = "penstock.device"
LINK_SALT = "penstock.device.link"
BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "SamsungBrowser": "Samsung Internet",
    "Firefox": "Firefox",
    "FxiOS": "Firefox",
    "CriOS": "Chrome",
    "Chrome": "Chrome",
    "Version": "Safari",
}
"""Browser names by their User-Agent product, the most specific first."""
SYSTEMS = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Android": "Android",
    "Windows": "Windows",
    "Mac OS X": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def device_of(request: HttpRequest, email: str) -> str | None:
    """Return the id of this device for an account, None if it is not trusted."""
    return _trusted_devices(request).get(account_of(email))


def is_trusted_device(request: HttpRequest, email: str) -> bool:
    """Return whether an account signed in before on this device or from this network."""
    if device_of(request, email) is not None:
        return True
    return is_trusted_network(email, get_adapter().get_client_ip(request))


def trust_device(request: HttpRequest, response: HttpResponseBase, email: str) -> str:
    """Trust this device for an account; return its id."""
    devices = _trusted_devices(request)
    account = account_of(email)
    device = devices.pop(account, None) or secrets.token_hex(16)
    devices = {**devices, account: device}
    kept = dict(list(devices.items())[-ACCOUNTS_MAX:])
    response.set_cookie(
        COOKIE,
        signing.dumps(kept, salt=COOKIE_SALT),
        max_age=AGE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return device


def link_token(email: str) -> str:
    """Return the token of an emailed link, valid for an hour."""
    return signing.dumps(email.lower(), salt=LINK_SALT)


def email_of_link(token: str) -> str | None:
    """Return the email address of a link, None if its token is forged or expired."""
    try:
        return str(signing.loads(token, salt=LINK_SALT, max_age=LINK_SECONDS))
    except signing.BadSignature:
        return None


def _trusted_devices(request: HttpRequest) -> dict[str, str]:
    try:
        devices: Any = signing.loads(
            request.COOKIES.get(COOKIE, ""), salt=COOKIE_SALT, max_age=AGE_SECONDS
        )
    except signing.BadSignature:
        return {}
    return {str(account): str(device) for account, device in devices.items()}


def device_name(user_agent: str) -> str:
    """Return a device's name in words, such as "Chrome on Linux"."""
    words = set(re.findall(r"(\w+)/", user_agent))
    browser = next((name for word, name in BROWSERS.items() if word in words), "")
    system = next((name for word, name in SYSTEMS.items() if word in user_agent), "")
    if browser and system:
        return gettext("%(browser)s on %(system)s") % {"browser": browser, "system": system}
    first = user_agent.split("/", maxsplit=1)[0].strip()
    if browser or system:
        return browser or system
    return first[:60] if first.isprintable() and first else gettext("An unknown device")
