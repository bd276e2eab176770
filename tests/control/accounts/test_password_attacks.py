"""More wrong passwords than are allowed, from one network and from many: nobody gets in by them,
nobody else is kept out, and what is refused is not hashed.

The limits are small here; `test_tries` holds the real ones.
"""

import re
from collections import Counter
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from django.test import Client

from control.accounts import login_attempts
from control.accounts.login_attempts import AttemptLimit
from control.accounts.models import User
from tests.fixtures.mails import delivered, link_in
from tests.fixtures.signing_in import (
    HOME,
    PASSWORD,
    browser,
    is_in,
    sign_in,
    signed_in,
    without_tokens,
)

DEVICE = AttemptLimit("device", 3, 300)
PAIR = AttemptLimit("pair", 2, 300)
ACCOUNT = AttemptLimit("account", 4, 3600)
NETWORK = AttemptLimit("network", 6, 600)
MORE = 2
"""So many tries beyond a limit."""
ATTACKER = "127.9.9.9"
ELSEWHERE = "203.0.113.5"

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowance in (DEVICE, PAIR, ACCOUNT, NETWORK):
        monkeypatch.setattr(login_attempts, allowance.name.upper(), allowance)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch, moment: SimpleNamespace) -> Counter:
    """How often a password was looked at."""
    from django.contrib.auth import hashers

    counted: Counter = Counter()
    verify = hashers.MD5PasswordHasher.verify

    def verified(self: object, password: str, encoded: str) -> bool:
        counted[password] += 1
        return verify(self, password, encoded)  # type: ignore[arg-type]

    monkeypatch.setattr(hashers.MD5PasswordHasher, "verify", verified)
    return counted


def attack(user: User, addresses: list[str]) -> Counter:
    """Try from each address in turn; return how it was answered."""
    clients = {address: browser(address) for address in dict.fromkeys(addresses)}
    return Counter(
        sign_in(clients[address], user.email, "wrong").status_code for address in addresses
    )


def many(count: int) -> list[str]:
    """Return addresses of the loopback, each in a network of its own."""
    return [f"127.{n // 250}.{n % 250 + 1}.1" for n in range(count)]


def test_one_network_gets_a_few_looks_and_keeps_nobody_out(
    ada: User, bob: User, hashed: Counter
) -> None:
    own = signed_in(ada.email)
    own.post("/accounts/logout/")
    assert attack(ada, [ATTACKER] * (PAIR.amount + MORE)) == {200: PAIR.amount, 429: MORE}
    assert hashed["wrong"] == PAIR.amount
    assert sign_in(own, ada.email).status_code == 302  # her own device
    assert sign_in(browser(ELSEWHERE), ada.email).status_code == 302  # anew, somewhere else
    assert sign_in(browser(ATTACKER), bob.email).status_code == 302  # in the attacker's office


def test_who_is_refused_is_refused_with_the_right_password_too(ada: User, hashed: Counter) -> None:
    attack(ada, [ATTACKER] * (PAIR.amount + 1))
    client = browser(ATTACKER)
    assert sign_in(client, ada.email).status_code == 429
    assert not is_in(client)
    assert not hashed[PASSWORD]


def test_a_network_of_ipv6_is_one_however_many_addresses_it_has(ada: User, hashed: Counter) -> None:
    attack(ada, [f"2001:db8:1:2::{n}" for n in range(1, PAIR.amount + 1)])
    assert sign_in(browser("2001:db8:1:2:3:4:5:6"), ada.email).status_code == 429
    assert sign_in(browser("2001:db8:1:3::1"), ada.email).status_code == 302


def test_ipv4_written_as_ipv6_is_ipv4(ada: User, hashed: Counter) -> None:
    attack(ada, [f"::ffff:203.0.113.{n}" for n in range(PAIR.amount)])
    assert sign_in(browser("203.0.113.9"), ada.email).status_code == 429
    assert sign_in(browser("::ffff:198.51.100.9"), ada.email).status_code == 302


def test_many_networks_get_a_few_looks_and_keep_nobody_out(
    ada: User, bob: User, hashed: Counter
) -> None:
    own = signed_in(ada.email)
    own.post("/accounts/logout/")
    assert attack(ada, many(ACCOUNT.amount + MORE)) == {200: ACCOUNT.amount, 429: MORE}
    assert hashed["wrong"] == ACCOUNT.amount
    assert sign_in(own, ada.email).status_code == 302  # her own device
    assert sign_in(browser(HOME), ada.email).status_code == 302  # another one, at home
    assert sign_in(browser(ELSEWHERE), bob.email).status_code == 302


def test_where_nobody_knows_her_a_link_from_her_mail_lets_her_in(
    ada: User, hashed: Counter
) -> None:
    attack(ada, many(ACCOUNT.amount))
    client = browser(ELSEWHERE)
    refused = sign_in(client, ada.email)
    assert refused.status_code == 429
    assert "Email me the link" in refused.content.decode()
    client.post("/accounts/login/trust-device/", {"email": ada.email})
    link = urlsplit(link_in(delivered()[-1], "/accounts/login/trust-device/")).path
    assert client.get(link).status_code == 302
    assert not is_in(client)  # the link alone signs nobody in
    assert attack(ada, many(PAIR.amount))[200] == 0
    assert sign_in(client, ada.email).status_code == 302


def test_an_office_is_not_shut_by_a_flood_against_many_accounts(
    ada: User, bob: User, hashed: Counter
) -> None:
    own = signed_in(ada.email, ATTACKER)
    own.post("/accounts/logout/")
    names = [User(email=f"nobody{n}@acme.example") for n in range(NETWORK.amount + MORE)]
    seen = Counter(sign_in(browser(ATTACKER), each.email, "wrong").status_code for each in names)
    assert seen == {200: NETWORK.amount, 429: MORE}
    assert sign_in(own, ada.email).status_code == 302
    assert sign_in(browser(ATTACKER), ada.email).status_code == 302  # she was here before
    assert sign_in(browser(ELSEWHERE), bob.email).status_code == 302


def test_the_time_until_the_next_try_is_told_and_true(
    ada: User, hashed: Counter, moment: SimpleNamespace
) -> None:
    moment.at += 100
    attack(ada, [ATTACKER] * PAIR.amount)
    refused = sign_in(browser(ATTACKER), ada.email)
    assert refused.headers["retry-after"] == str(PAIR.seconds - 100)
    page = refused.content.decode()
    assert "Try again in 4 minutes" in page
    assert re.search(
        rf'name="login"[^>]*value="{ada.email}"|value="{ada.email}"[^>]*name="login"', page
    )
    moment.at += PAIR.seconds - 100 - 1
    assert sign_in(browser(ATTACKER), ada.email).status_code == 429
    moment.at += 1
    assert sign_in(browser(ATTACKER), ada.email).status_code == 302


def test_typos_on_ones_own_device_use_up_nothing_elsewhere(ada: User, hashed: Counter) -> None:
    own = signed_in(ada.email)
    own.post("/accounts/logout/")
    seen = Counter(sign_in(own, ada.email, "typo").status_code for _ in range(DEVICE.amount + MORE))
    assert seen == {200: DEVICE.amount, 429: MORE}
    assert sign_in(browser(HOME), ada.email).status_code == 302


def test_a_right_password_gives_its_try_back(ada: User, hashed: Counter) -> None:
    for _ in range(PAIR.amount * 3):
        assert sign_in(browser(HOME), ada.email).status_code == 302
    for _ in range(PAIR.amount):
        assert sign_in(browser(HOME), ada.email, "typo").status_code == 200
    assert sign_in(browser(HOME), ada.email).status_code == 429


def test_an_account_that_is_none_is_counted_and_refused_the_same(
    ada: User, hashed: Counter
) -> None:
    nobody = User(email="nobody@acme.example")
    count = PAIR.amount + MORE
    assert attack(nobody, [ATTACKER] * count) == attack(ada, [ELSEWHERE] * count)
    told = {
        without_tokens(sign_in(browser(address), user.email, "wrong").content.decode())
        for user, address in ((nobody, ATTACKER), (ada, ELSEWHERE))
    }
    assert len(told) == 1


def test_a_device_that_somebody_made_up_is_nobodys(ada: User, hashed: Counter) -> None:
    attack(ada, [ATTACKER] * PAIR.amount)
    client: Client = browser(ATTACKER)
    client.cookies["penstock_device"] = "eyJhIjoiYiJ9:1:forged"
    assert sign_in(client, ada.email).status_code == 429


def test_a_link_of_one_account_opens_no_other(ada: User, bob: User, hashed: Counter) -> None:
    attack(ada, [ATTACKER] * PAIR.amount)
    client = browser(ATTACKER)
    client.post("/accounts/login/trust-device/", {"email": bob.email})
    client.get(urlsplit(link_in(delivered()[-1], "/accounts/login/trust-device/")).path)
    assert sign_in(client, ada.email).status_code == 429


def test_asking_for_the_link_tells_nobody_who_has_an_account(ada: User, hashed: Counter) -> None:
    asked = [
        browser().post("/accounts/login/trust-device/", {"email": email})
        for email in (ada.email, "nobody@acme.example")
    ]
    told = {(reply.status_code, without_tokens(reply.content.decode())) for reply in asked}
    assert len(told) == 1
    assert [(mail.to[0], mail.subject) for mail in delivered()] == [
        (ada.email, "Sign in on this device"),
        ("nobody@acme.example", "There is no account for this address"),
    ]


@pytest.mark.parametrize("email", ["", "x", "a\0b@acme.example", "é" * 300, "<b>@acme.example"])
def test_a_link_for_what_is_no_address_is_sent_to_nobody(email: str, db: None) -> None:
    assert browser().post("/accounts/login/trust-device/", {"email": email}).status_code == 200
    assert delivered() == []
