"""What is counted of tries: never more looks than allowed, and none of one taken by another."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.cache import cache
from hypothesis import given
from hypothesis import strategies as st

from control.accounts.login_attempts import (
    ACCOUNT,
    DEVICE,
    NETWORK,
    PAIR,
    LoginAttempt,
    is_trusted_network,
    network_of,
    release,
    reserve,
    trust_network,
)
from tests.fixtures.redis_server import RedisServer
from tests.fixtures.signing_in import NOW

EMAILS = ["ada@acme.example", "bob@acme.example"]
ADDRESSES = [f"10.0.{n}.1" for n in range(4)]
TRIES = st.builds(
    LoginAttempt,
    st.sampled_from(EMAILS),
    st.sampled_from(ADDRESSES),
    st.sampled_from([None, None, None, "device"]),
)


@given(st.lists(TRIES, max_size=150))
def test_no_window_allows_more_than_it_says(tries: list[LoginAttempt]) -> None:
    cache.clear()
    looks = [each for each in tries if not reserve(each, NOW).is_refused]
    strangers = [each for each in looks if each.device is None]
    for email in EMAILS:
        own = [each for each in strangers if each.email == email]
        assert len(own) <= ACCOUNT.amount
        for address in ADDRESSES:
            assert len([each for each in own if each.address == address]) <= PAIR.amount
    for address in ADDRESSES:
        assert len([each for each in strangers if each.address == address]) <= NETWORK.amount
    assert len(looks) - len(strangers) <= DEVICE.amount


@given(st.lists(TRIES, max_size=60))
def test_what_is_given_back_was_never_taken(tries: list[LoginAttempt]) -> None:
    cache.clear()
    for each in tries:
        taken = reserve(each, NOW)
        assert not taken.is_refused
        release(taken)


@given(st.lists(TRIES.filter(lambda each: each.device is None), max_size=150))
def test_strangers_never_use_up_a_known_device(tries: list[LoginAttempt]) -> None:
    cache.clear()
    for each in tries:
        reserve(each, NOW)
    assert not reserve(LoginAttempt(EMAILS[0], ADDRESSES[0], "hers"), NOW).is_refused


def test_a_wait_ends_with_its_window() -> None:
    tried = LoginAttempt(EMAILS[0], ADDRESSES[0])
    for _ in range(PAIR.amount):
        reserve(tried, NOW + 10.5)
    refused = reserve(tried, NOW + 10.5)
    assert refused.wait_seconds == 290
    assert not reserve(tried, NOW + 300.0).is_refused


def test_a_network_is_what_one_customer_has() -> None:
    assert network_of("203.0.113.7") == network_of("203.0.113.250") == "203.0.113.0/24"
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert network_of("no address") == "no address"


def test_a_network_is_known_to_the_account_that_came_from_there() -> None:
    trust_network(EMAILS[0], "203.0.113.7")
    assert is_trusted_network(EMAILS[0].upper(), "203.0.113.9")
    assert not is_trusted_network(EMAILS[1], "203.0.113.7")


@pytest.mark.integration
def test_many_at_once_get_no_more_looks(redis: RedisServer) -> None:
    tried = LoginAttempt(EMAILS[0], ADDRESSES[0])
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda _: reserve(tried, NOW), range(64)))
    assert sum(not each.is_refused for each in taken) == PAIR.amount
