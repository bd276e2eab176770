"""The signal `account_event`, sent in the transaction of a change to an account, and what else
follows from allauth's and Django's signals.

Its arguments: `user`, `action` (the audit log's name), `by` (Actor) and `details` (JSON). Attempts
that are refused without a check send no event: ten thousand of them would bury what matters.
"""

from typing import Any

from allauth.account import signals as account
from allauth.account.authentication import get_authentication_records
from allauth.account.models import EmailAddress
from allauth.mfa import signals as factors
from allauth.mfa.models import Authenticator
from django.contrib.auth.signals import user_logged_out
from django.db.models import Model, QuerySet
from django.db.models.signals import post_delete
from django.dispatch import Signal
from django.http import HttpRequest

from control.accounts.models import FormerAddress, User, user_by_email
from control.permissions import Actor

account_event = Signal()
NOBODY = Actor.for_system("sign-in")
"""The actor of a wrong password or code, who may not be the account's owner."""


def listen() -> None:
    """Turn allauth's signals into account events, and keep each verified address that is deleted,
    by its owner or by an identity provider."""
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
    post_delete.connect(_keep_address, EmailAddress, dispatch_uid="control.accounts.addresses")


def send_account_event(user: User, action: str, *, by: Actor | None = None, **details: Any) -> None:
    """Send an account event; the actor is the account's owner by default."""
    actor = by or Actor.for_user(user)
    account_event.send(User, user=user, action=action, by=actor, details=details)


def send_wrong_password(email: str) -> None:
    """Send the event of a wrong password if the account exists."""
    user = user_by_email(email)
    if user is not None:
        send_account_event(user, "user.login_failed", by=NOBODY, way="password")


def _on_login(sender: object, request: HttpRequest, user: User, **_: Any) -> None:
    ways = [
        record.get("type") or record["method"]
        for record in get_authentication_records(request, user)
    ]
    send_account_event(user, "user.logged_in", ways=list(dict.fromkeys(ways)))


def _on_logout(sender: object, request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None:
        send_account_event(user, "user.logged_out")


def _on_password_changed(sender: object, user: User, **_: Any) -> None:
    send_account_event(user, "user.password_changed")


def _on_password_reset(sender: object, user: User, **_: Any) -> None:
    send_account_event(user, "user.password_reset")


def _on_email_changed(
    sender: object,
    user: User,
    from_email_address: EmailAddress | None,
    to_email_address: EmailAddress,
    **_: Any,
) -> None:
    before = from_email_address.email if from_email_address else None
    after = {"email": to_email_address.email}
    send_account_event(user, "user.email_changed", before={"email": before}, after=after)


def _on_factor_added(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    send_account_event(user, "user.mfa_added", kind=authenticator.type)


def _on_factor_removed(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    send_account_event(user, "user.mfa_removed", kind=authenticator.type)


def _on_factor_reset(sender: object, user: User, authenticator: Authenticator, **_: Any) -> None:
    send_account_event(user, "user.mfa_reset", kind=authenticator.type)


def _on_wrong_code(sender: object, user: User, authenticator: Any = None, **_: Any) -> None:
    way = getattr(authenticator, "type", "code")
    send_account_event(user, "user.login_failed", by=NOBODY, way=way)


def _keep_address(
    sender: object, instance: EmailAddress, origin: Model | QuerySet[Model], **_: object
) -> None:
    is_with_its_user = getattr(origin, "model", type(origin)) is not EmailAddress
    if instance.verified and not is_with_its_user:
        FormerAddress.objects.create(user_id=instance.user_id, email=instance.email.lower())
