"""Readers of environment variables name the variable, its value and the expected form."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from serving.contract import environment

pytestmark = pytest.mark.unit
Reader = Callable[[dict[str, str], str], Any]

number = partial(environment.whole_number, default=5, largest=10, smallest=1)
level = partial(environment.one_of, allowed=("low", "high"))
seconds = partial(environment.seconds, default=2.0)
timeout = partial(environment.timeout, default=10.0)
fleets = partial(environment.named_urls, only="default")


@pytest.mark.parametrize(
    ("reader", "value", "expected"),
    [
        (number, "", 5),
        (number, "10", 10),
        (level, "", "low"),
        (seconds, "", 2.0),
        (seconds, "0", 0.0),
        (timeout, "0.5", 0.5),
        (environment.switch, "", False),
        (environment.switch, "1", True),
        (environment.url, "https://example.com/", "https://example.com"),
        (environment.redis_url, "unix:///run/redis.sock", "unix:///run/redis.sock"),
        (environment.networks, "", ()),
        (fleets, "http://10.0.0.1:8704/", {"default": "http://10.0.0.1:8704"}),
        (fleets, "eu=http://a:1, us=https://b/", {"eu": "http://a:1", "us": "https://b"}),
    ],
)
def test_a_variable_is_typed(reader: Reader, value: str, expected: object) -> None:
    assert reader({"NAME": value}, "NAME") == expected


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        (number, "0"),
        (number, "11"),
        (number, "٣"),
        (level, "medium"),
        (seconds, "-1"),
        (seconds, "soon"),
        (timeout, "0"),
        (environment.switch, "yes"),
        (environment.url, "ftp://example.com"),
        (environment.url, "https://"),
        (environment.redis_url, "http://example.com"),
        (environment.networks, "10.0.0.1/8"),
        (fleets, "eu=http://a,eu=http://b"),
        (fleets, "eu=http://a,http://b"),
        (fleets, "../eu=http://a"),
        (fleets, "eu=ftp://a"),
    ],
)
def test_an_invalid_value_is_named(reader: Reader, value: str) -> None:
    with pytest.raises(environment.ConfigError, match=r"^NAME is .*; wanted"):
        reader({"NAME": value}, "NAME")


def test_a_short_secret_is_not_repeated() -> None:
    with pytest.raises(environment.ConfigError, match=r"^NAME has 7 characters") as error:
        environment.secret({"NAME": "hunter2"}, "NAME")
    assert "hunter2" not in str(error.value)
