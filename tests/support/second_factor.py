"""The second factor that the admin demands: a forced login stands for a whole one, and a person in
a test computes the codes that an app on a telephone would."""

import re
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest

PERIOD_SECONDS = 30
SECRETS: dict[tuple[str, str], str] = {}
"""What the app of each person holds, by host and address: platforms are many in a run of tests."""
_USED: dict[str, int] = {}


def proved_with_forced_logins() -> None:
    """Let `client.force_login` stand for a sign-in with the second factor too."""
    user_logged_in.connect(_prove, dispatch_uid="tests.second_factor")


def _prove(sender: object, request: HttpRequest, user: Any, **_: Any) -> None:
    from allauth.account.internal.flows.login import record_authentication

    if request.method is None:  # a real sign-in comes by HTTP
        record_authentication(request, user, "mfa")


def code_of(secret: str, period: int | None = None) -> str:
    """Return the code that an app with this secret shows, now by default."""
    from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value

    now = int(time.time()) // PERIOD_SECONDS
    return str(format_hotp_value(hotp_value(secret, now if period is None else period)))


def next_code(secret: str) -> str:
    """Return a code that was not used yet, once the app shows one: each opens once."""
    while (period := int(time.time()) // PERIOD_SECONDS) <= _USED.get(secret, 0):
        time.sleep(0.2)
    _USED[secret] = period
    return code_of(secret, period)


def sign_in_operator(client: httpx.Client, console_url: str, *, email: str, password: str) -> None:
    """Sign an operator in by HTTP, who sets up a second factor where it is the first time."""
    sent, whose = {"login": email, "password": password}, (urlsplit(console_url).netloc, email)
    reply = _post(client, f"{console_url}/accounts/login/?next=/admin/", sent)
    if whose not in SECRETS:
        reply = _post(client, str(reply.url), {"password": password})  # asked once more
        found = re.search(r'id="authenticator_secret"[^>]*value="(\w+)"', reply.text)
        found = found or re.search(r'value="(\w+)"[^>]*id="authenticator_secret"', reply.text)
        assert found, reply.text
        SECRETS[whose] = found[1]
    reply = _post(client, str(reply.url), {"code": next_code(SECRETS[whose])})
    assert reply.status_code == 200, reply.status_code
    assert client.get(f"{console_url}/admin/").url.path == "/admin/"


def _post(client: httpx.Client, url: str, sent: dict[str, str]) -> httpx.Response:
    if "csrftoken" not in client.cookies:  # looking at a form anew would make a new secret
        client.get(url).raise_for_status()
    form = {**sent, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
    return client.post(url, data=form, headers={"referer": url})
