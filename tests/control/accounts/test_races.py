"""What two do at the same instant: a code opens once, and an ended session is not begun anew."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.usersessions.models import UserSession
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import connections
from django.test import Client

from control.accounts import sessions
from control.accounts.models import User
from tests.fixtures.redis_server import RedisServer
from tests.fixtures.second_factor import code_of
from tests.fixtures.signing_in import PASSWORD, browser, is_in, sign_in, signed_in

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
AT_ONCE = 6
AUTHENTICATE = "/accounts/2fa/authenticate/"
AGAIN = "/accounts/reauthenticate/"
SECRET = "JBSWY3DPEHPK3PXP"


def at_once(act: Callable[[Client], object], clients: list[Client]) -> None:
    """Have all browsers do something in the same instant."""
    ready = Barrier(len(clients))

    def run(client: Client) -> None:
        ready.wait(60)
        try:
            act(client)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(run, clients))


@pytest.mark.parametrize("kind", ["recovery", "app"])
def test_a_code_opens_once_however_many_show_it(
    ada: User, kind: str, redis: RedisServer, still_codes: None
) -> None:
    Authenticator.objects.create(user=ada, type="totp", data={"secret": SECRET})
    codes = RecoveryCodes.activate(ada).get_unused_codes()
    code = codes[0] if kind == "recovery" else code_of(SECRET)
    clients = [browser() for _ in range(AT_ONCE)]
    for each in clients:
        sign_in(each, ada.email)
    at_once(lambda client: client.post(AUTHENTICATE, {"code": code}), clients)
    assert sum(map(is_in, clients)) == 1


def test_a_request_under_way_does_not_begin_an_ended_session_anew(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = signed_in(ada.email, "203.0.113.5"), signed_in(ada.email)
    asked, ended = Event(), Event()
    save = SessionStore.save

    def late(self: SessionStore, must_create: bool = False) -> None:
        if self.session_key == there.session.session_key:
            asked.set()
            ended.wait(60)
        save(self, must_create)

    key = there.session.session_key
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(SessionStore, "save", late)
        slow = pool.submit(at_once, lambda each: each.post(AGAIN, {"password": PASSWORD}), [there])
        assert asked.wait(60)
        here.post(f"/accounts/sessions/{UserSession.objects.get(session_key=key).pk}/end/")
        ended.set()
        slow.result(60)
    assert not Session.objects.filter(session_key=key).exists()
    assert there.get("/api/v1/organizations").status_code == 401


def test_ended_twice_at_once_it_is_ended(ada: User) -> None:
    there = signed_in(ada.email, "203.0.113.5")
    clients = [signed_in(ada.email) for _ in range(AT_ONCE)]
    pk = UserSession.objects.get(session_key=there.session.session_key).pk
    at_once(lambda client: client.post(f"/accounts/sessions/{pk}/end/"), clients)
    assert there.get("/api/v1/organizations").status_code == 401


def test_many_who_sign_in_at_once_leave_no_more_sessions_than_allowed(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    for _ in range(3):
        signed_in(ada.email)
    at_once(lambda client: sign_in(client, ada.email), [browser() for _ in range(AT_ONCE)])
    signed_in(ada.email)
    assert UserSession.objects.count() == Session.objects.count() == 3
