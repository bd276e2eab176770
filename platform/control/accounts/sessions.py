"""A user's sessions: list and end them, up to a limit. allauth keeps a row beside each session that
says where it began. allauth ends sessions one by one; this module ends them in bulk."""

from datetime import datetime
from typing import Any

from allauth.account import signals as account
from allauth.usersessions import signals as usersessions
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from control.accounts.models import User, locked_user

SESSIONS_MAX = 20
"""Per user; the oldest sessions end first."""


def listen() -> None:
    """Connect receivers to sign-ins and new passwords."""
    account.user_logged_in.disconnect(usersessions.on_user_logged_in)
    for signal, receiver in (
        (account.user_logged_in, _on_sign_in),
        (account.password_changed, _on_new_password),
        (account.password_reset, _on_new_password),
    ):
        signal.connect(receiver, dispatch_uid=f"control.accounts.sessions.{receiver.__name__}")


def open_sessions(user: User, now: datetime) -> QuerySet[UserSession]:
    """Return a user's open sessions, newest first."""
    is_open = Session.objects.filter(expire_date__gt=now).values("session_key")
    return _sessions_of(user).filter(session_key__in=is_open)


def end_other_sessions(user: User, request: HttpRequest) -> None:
    """End all sessions of a user except the current one."""
    _end(_sessions_of(user).exclude(session_key=request.session.session_key or ""))


def purge_sessions(*, now: datetime) -> None:
    """Delete expired sessions, including anonymous ones of passkey sign-ins."""
    Session.objects.filter(expire_date__lt=now).delete()
    UserSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()


@transaction.atomic
def _on_sign_in(sender: object, request: HttpRequest, user: User, **_: Any) -> None:
    locked_user(user.id)
    UserSession.objects.create_from_request(request)
    _end(_sessions_of(user)[SESSIONS_MAX:])


def _on_new_password(sender: object, request: HttpRequest, user: User, **_: Any) -> None:
    end_other_sessions(user, request)


def _sessions_of(user: User) -> QuerySet[UserSession]:
    sessions: QuerySet[UserSession] = UserSession.objects.filter(user_id=user.pk)
    return sessions.order_by("-created_at")


@transaction.atomic
def _end(rows: QuerySet[UserSession]) -> None:
    keys = [row.session_key for row in rows]
    Session.objects.filter(session_key__in=keys).delete()
    UserSession.objects.filter(session_key__in=keys).delete()
