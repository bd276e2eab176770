"""`account_event`: what happened to a person's account, inside the transaction in which it did.

Arguments: `user`, `action` (as the audit log names it), `by` (Actor, whoever did it) and `details`
(JSON). Attempts that are refused unread are no events: ten thousand would bury what matters.
"""

from typing import Any

from allauth.account import signals as account
from allauth.account.authentication import get_authentication_records
from allauth.mfa import signals as factors
from allauth.mfa.models import Authenticator
from django.contrib.auth.signals import user_logged_out
from django.dispatch import Signal
from django.http import HttpRequest

from control.accounts.models import User
from control.accounts.selectors import user_by_email
from control.permissions import Actor

account_event = Signal()
NOBODY = Actor.for_system("sign-in")
"""Whoever gives a wrong password or code is not known to be the person."""


def listen() -> None:
    """Send an event for whatever allauth signals."""
    for signal, receiver in (
        (account.user_logged_in, _on_login),
        (user_logged_out, _on_logout),
        (account.password_changed, _on_password_changed),
        (account.password_reset, _on_password_reset),
        (account.email_changed, _on_email_changed),
        (factors.authenticator_added, _on_factor_added),
        (factors.authenticator_removed, _on_factor_removed),
        (factors.authenticator_reset, _on_factor_reset),
        (factors.authentication_failed, _on_wrong_code),
    ):
        signal.connect(receiver, dispatch_uid=f"control.accounts.signals.{receiver.__name__}")


def send_account_event(user: User, action: str, *, by: Actor | None = None, **details: Any) -> None:
    """Say what happened to an account: by its person, if nobody else is named."""
    actor = by or Actor.for_user(user)
    account_event.send(User, user=user, action=action, by=actor, details=details)


def send_wrong_password(email: str) -> None:
    """Say that somebody gave a wrong password for an account that exists."""
    user = user_by_email(email)
    if user is not None:
        send_account_event(user, "session.refuse", by=NOBODY, way="password")


def _on_login(sender: object, request: HttpRequest, user: User, **_: Any) -> None:
    ways = [
        each.get("type") or each["method"] for each in get_authentication_records(request, user)
    ]
    send_account_event(user, "session.begin", ways=list(dict.fromkeys(ways)))


def _on_logout(sender: object, request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None:
        send_account_event(user, "session.end")


def _on_password_changed(sender: object, user: User, **_: Any) -> None:
    send_account_event(user, "password.change")


def _on_password_reset(sender: object, user: User, **_: Any) -> None:
    send_account_event(user, "password.reset")


def _on_email_changed(sender: object, user: User, **_: Any) -> None:
    send_account_event(user, "address.change")


def _on_factor_added(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    send_account_event(user, "factor.add", kind=authenticator.type)


def _on_factor_removed(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    send_account_event(user, "factor.remove", kind=authenticator.type)


def _on_factor_reset(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    send_account_event(user, "factor.renew", kind=authenticator.type)


def _on_wrong_code(sender: object, user: User, authenticator: Any = None, **_: Any) -> None:
    way = getattr(authenticator, "type", "code")
    send_account_event(user, "session.refuse", by=NOBODY, way=way)
