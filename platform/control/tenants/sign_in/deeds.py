"""What the audit keeps of how accounts are opened: a deed in each organization of the person, since
each has its own officer to answer to. Addresses and devices are told apart by the audit itself.

Tries that are refused unread are no deeds: ten thousand would bury what matters.
"""

from typing import Any

from allauth.account import signals as account
from allauth.account.authentication import get_authentication_records
from allauth.mfa import signals as factors
from allauth.mfa.models import Authenticator
from django.contrib.auth.signals import user_logged_out
from django.http import HttpRequest

from control.actor import Actor, person, system
from control.audit import services as audit
from control.tenants import selectors
from control.tenants.models import User

NOBODY = system("sign-in")
"""Who gave a wrong password or code is not known to be the person."""


def listen() -> None:
    """Write down what allauth tells."""
    for signal, receiver in (
        (account.user_logged_in, _on_sign_in),
        (user_logged_out, _on_sign_out),
        (account.password_changed, _on_password_changed),
        (account.password_reset, _on_password_reset),
        (account.email_changed, _on_address_changed),
        (factors.authenticator_added, _on_factor_added),
        (factors.authenticator_removed, _on_factor_removed),
        (factors.authenticator_reset, _on_factor_renewed),
        (factors.authentication_failed, _on_wrong_code),
    ):
        signal.connect(receiver, dispatch_uid=f"control.tenants.deeds.{receiver.__name__}")


def record(user: User, action: str, *, by: Actor | None = None, **details: Any) -> None:
    """Write a deed about a person's account, by themselves if nobody else is named."""
    actor = by or person(user)
    organizations = [seat.organization_id for seat in selectors.memberships(user)]
    for organization_id in organizations or [""]:
        audit.record(
            actor=actor,
            action=action,
            target_kind="user",
            target_id=user.id,
            organization_id=organization_id,
            details=details,
        )


def record_wrong_password(email: str) -> None:
    """Write down a wrong password for an account that there is."""
    user = selectors.user_by_email(email)
    if user is not None:
        record(user, "session.refuse", by=NOBODY, way="password")


def _on_sign_in(sender: object, request: HttpRequest, user: User, **_: Any) -> None:
    ways = [
        each.get("type") or each["method"] for each in get_authentication_records(request, user)
    ]
    record(user, "session.begin", ways=list(dict.fromkeys(ways)))


def _on_sign_out(sender: object, request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None:
        record(user, "session.end")


def _on_password_changed(sender: object, user: User, **_: Any) -> None:
    record(user, "password.change")


def _on_password_reset(sender: object, user: User, **_: Any) -> None:
    record(user, "password.reset")


def _on_address_changed(sender: object, user: User, **_: Any) -> None:
    record(user, "address.change")


def _on_factor_added(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    record(user, "factor.add", kind=authenticator.type)


def _on_factor_removed(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    record(user, "factor.remove", kind=authenticator.type)


def _on_factor_renewed(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    record(user, "factor.renew", kind=authenticator.type)


def _on_wrong_code(sender: object, user: User, authenticator: Any = None, **_: Any) -> None:
    way = getattr(authenticator, "type", "code")
    record(user, "session.refuse", by=NOBODY, way=way)
