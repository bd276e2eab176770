"""The devices that an account signed in on: a signed cookie of the browser's says so. It opens
nothing; it lets a person try on their own device whatever others do elsewhere (decision 0036)."""

import re
import secrets
from typing import Any

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from control.accounts.login_attempts import account_of, is_trusted_network

COOKIE = "penstock_device"
AGE_SECONDS = 365 * 24 * 3600
ACCOUNTS_MAX = 5
"""Of one browser; the oldest is forgotten."""
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
"""By the word in a browser's name for itself that no earlier one has."""
SYSTEMS = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Android": "Android",
    "Windows": "Windows",
    "Mac OS X": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}
UNKNOWN_DEVICE = "An unknown device"


def device_of(request: HttpRequest, email: str) -> str | None:
    """Return the id of this device for an account; None where it is not known."""
    return _trusted_devices(request).get(account_of(email))


def is_trusted_device(request: HttpRequest, email: str) -> bool:
    """Tell whether an account signed in before on this device, or from this network."""
    if device_of(request, email) is not None:
        return True
    return is_trusted_network(email, get_adapter().get_client_ip(request))


def trust_device(request: HttpRequest, response: HttpResponseBase, email: str) -> str:
    """Take this device as one of the account's; return its id."""
    devices = _trusted_devices(request)
    account = account_of(email)
    found = devices.pop(account, None) or secrets.token_hex(16)
    devices = {**devices, account: found}
    kept = dict(list(devices.items())[-ACCOUNTS_MAX:])
    response.set_cookie(
        COOKIE,
        signing.dumps(kept, salt=COOKIE_SALT),
        max_age=AGE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return found


def link_token(email: str) -> str:
    """Return what the link of a mail says, good for an hour."""
    return signing.dumps(email.lower(), salt=LINK_SALT)


def email_of_link(token: str) -> str | None:
    """Return whose link it is; None for one that is forged or too old."""
    try:
        return str(signing.loads(token, salt=LINK_SALT, max_age=LINK_SECONDS))
    except signing.BadSignature:
        return None


def _trusted_devices(request: HttpRequest) -> dict[str, str]:
    try:
        found: Any = signing.loads(
            request.COOKIES.get(COOKIE, ""), salt=COOKIE_SALT, max_age=AGE_SECONDS
        )
    except signing.BadSignature:
        return {}
    return {str(account): str(device) for account, device in found.items()}


def device_name(user_agent: str) -> str:
    """Return what a person calls a device: Chrome on Linux."""
    words = set(re.findall(r"(\w+)/", user_agent))
    browser = next((name for word, name in BROWSERS.items() if word in words), "")
    system = next((name for word, name in SYSTEMS.items() if word in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    first = user_agent.split("/", maxsplit=1)[0].strip()
    return browser or system or (first if first.isprintable() and first else UNKNOWN_DEVICE)[:60]
