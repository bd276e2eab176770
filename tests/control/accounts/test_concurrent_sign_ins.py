"""How many sign in at once, and what the others are told."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event

import pytest
from django.test import Client

from control.accounts import login_attempts
from control.accounts.login_attempts import (
    CONCURRENT_LOGINS_MAX,
    ConcurrencyLimitExceeded,
    login_slot,
)
from control.accounts.models import User
from tests.fixtures.signing_in import PASSWORD, browser, sign_in


@contextmanager
def all_taken() -> Iterator[None]:
    """Have others hold every turn."""
    hold, held = Event(), Barrier(CONCURRENT_LOGINS_MAX + 1)

    def take() -> None:
        with login_slot(is_known=True):
            held.wait(60)
            hold.wait(60)

    with ThreadPoolExecutor(CONCURRENT_LOGINS_MAX) as pool:
        for _ in range(CONCURRENT_LOGINS_MAX):
            pool.submit(take)
        held.wait(60)
        try:
            yield
        finally:
            hold.set()


def test_who_has_a_turn_needs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_attempts, "WAIT_SECONDS", 0.05)
    for _ in range(2 * CONCURRENT_LOGINS_MAX):
        with login_slot(is_known=False), login_slot(is_known=False), login_slot(is_known=True):
            pass


def test_one_turn_is_left_for_who_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_attempts, "WAIT_SECONDS", 0.05)
    hold, held = Event(), Barrier(CONCURRENT_LOGINS_MAX)

    def stranger() -> None:
        with login_slot(is_known=False):
            held.wait(60)
            hold.wait(60)

    with ThreadPoolExecutor(CONCURRENT_LOGINS_MAX) as pool:
        work = [pool.submit(stranger) for _ in range(CONCURRENT_LOGINS_MAX - 1)]
        held.wait(60)
        with pytest.raises(ConcurrencyLimitExceeded), login_slot(is_known=False):
            pytest.fail("no turn was left for a stranger")
        with login_slot(is_known=True):
            hold.set()
        for each in work:
            each.result(60)


@pytest.mark.django_db
def test_who_gets_no_turn_is_told_when_to_come_back_and_keeps_the_try(
    monkeypatch: pytest.MonkeyPatch, ada: User
) -> None:
    monkeypatch.setattr(login_attempts, "WAIT_SECONDS", 0.01)
    client: Client = browser()
    for _ in range(10):
        with all_taken():
            reply = sign_in(client, ada.email)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "2")
    assert sign_in(client, ada.email).status_code == 302


@pytest.mark.django_db
def test_a_sign_up_without_a_turn_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_attempts, "WAIT_SECONDS", 0.01)
    form = {"email": "eve@acme.example", "password1": PASSWORD}
    with all_taken():
        reply = browser().post("/accounts/signup/", form)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "2")
    assert not User.objects.exists()
