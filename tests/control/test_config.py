"""The environment is checked at the edge, and a bad variable is named."""

import os

import pytest

from control.config import ControlConfig
from serving.contract.environment import ConfigError

pytestmark = pytest.mark.unit
SECRETS = [
    "PENSTOCK_SECRET_KEY",
    "PENSTOCK_INTERNAL_SECRET",
    "PENSTOCK_KEY_PEPPER",
    "PENSTOCK_ENCRYPTION_KEY",
    "PENSTOCK_PLAYGROUND_SECRET",
]


def config(**changes: str) -> ControlConfig:
    return ControlConfig.from_environment({**os.environ, **changes})


@pytest.mark.parametrize("name", [*SECRETS, "DATABASE_URL", "REDIS_URL"])
def test_what_has_no_default_must_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is not set"):
        config(**{name: ""})


@pytest.mark.parametrize("name", SECRETS)
def test_a_short_secret_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**{name: "hunter2"})
    assert name in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_CONTROL_PORT", "70000"),
        ("PENSTOCK_INTERNAL_API_PORT", "http"),
        ("PENSTOCK_CONSOLE_URL", "127.0.0.1:8700"),
        ("PENSTOCK_DEBUG", "yes"),
        ("PENSTOCK_LOG_FORMAT", "xml"),
        ("PENSTOCK_SIGNUP_CREDIT_NANOS", "5.0"),
        ("PENSTOCK_MINUTE_USAGE_RETENTION_DAYS", "-1"),
        ("PENSTOCK_EGRESS_ALLOW_HTTP", "no"),
        ("PENSTOCK_EGRESS_ALLOWED_NETWORKS", "10.0.0.1/8"),
        ("PENSTOCK_DNS_SERVERS", "ns.example.com"),
        ("REDIS_URL", "http://127.0.0.1"),
    ],
)
def test_a_bad_value_is_named_with_the_wish(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is {value!r}; wanted"):
        config(**{name: value})


def test_peppers_are_several_the_newest_first() -> None:
    peppers = config(
        PENSTOCK_KEY_PEPPER="the newest of them all",
        PENSTOCK_KEY_PEPPERS_PREVIOUS=" second-0123456789  third-0123456789 ",
    ).key_peppers
    assert peppers == ("the newest of them all", "second-0123456789", "third-0123456789")
    with pytest.raises(
        ConfigError, match=r"^PENSTOCK_KEY_PEPPERS_PREVIOUS has a short one"
    ) as error:
        config(PENSTOCK_KEY_PEPPERS_PREVIOUS="second-0123456789 hunter2")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("value", ["mysql://u:secret@h/d", "postgresql://u:secret@h/%zz"])
def test_a_bad_database_url_does_not_show_its_password(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^DATABASE_URL") as error:
        config(DATABASE_URL=value)
    assert "secret" not in str(error.value)


def test_a_database_may_be_behind_a_socket() -> None:
    database = config(DATABASE_URL="postgresql://me@/books?host=/run/pg&sslmode=disable").database
    assert (database.name, database.user, database.host) == ("books", "me", "/run/pg")
    assert database.options == {"sslmode": "disable"}


def test_who_migrates_is_the_application_where_nobody_else_is_named() -> None:
    one = config(DATABASE_URL="postgresql://me@db/books", DATABASE_OWNER_URL="")
    assert one.database_owner == one.database
    two = config(DATABASE_OWNER_URL="postgresql://boss@db/books")
    assert two.database_owner.user == "boss"
    with pytest.raises(ConfigError, match=r"^DATABASE_OWNER_URL is no PostgreSQL address"):
        config(DATABASE_OWNER_URL="mysql://h/d")


@pytest.mark.parametrize(
    ("url", "secure"), [("http://127.0.0.1:8700", False), ("https://console.example", True)]
)
def test_cookies_are_secure_where_the_console_is_reached_over_tls(url: str, secure: bool) -> None:
    assert config(PENSTOCK_CONSOLE_URL=url).is_https is secure


STRIPE = {
    "STRIPE_SECRET_KEY": "sk_test_abc",
    "STRIPE_WEBHOOK_SECRET": "whsec_one, whsec_two",
    "STRIPE_PUBLISHABLE_KEY": "pk_test_abc",
}


def test_stripe_is_all_or_nothing() -> None:
    assert config().stripe is None
    keys = config(**STRIPE).stripe
    assert keys is not None
    assert (keys.mode, keys.webhook_secrets) == ("test", ("whsec_one", "whsec_two"))
    assert "sk_test_abc" not in repr(keys)
    assert "whsec_one" not in repr(keys)


@pytest.mark.parametrize("name", list(STRIPE))
def test_a_missing_stripe_key_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is not set, but"):
        config(**STRIPE | {name: ""})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"STRIPE_SECRET_KEY": "pk_test_hunter2"}, "STRIPE_SECRET_KEY"),
        ({"STRIPE_PUBLISHABLE_KEY": "sk_test_hunter2"}, "STRIPE_PUBLISHABLE_KEY"),
        ({"STRIPE_WEBHOOK_SECRET": "whsec_one,hunter2"}, "STRIPE_WEBHOOK_SECRET"),
        ({"STRIPE_SECRET_KEY": "sk_live_hunter2"}, "STRIPE_SECRET_KEY is of live mode"),
        ({"STRIPE_API_BASE": "stripe"}, "STRIPE_API_BASE"),
    ],
)
def test_a_bad_stripe_key_is_named_and_not_shown(changes: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as error:
        config(**STRIPE | changes)
    assert "hunter2" not in str(error.value)


def test_live_keys_go_to_stripe_only() -> None:
    live = {
        "STRIPE_SECRET_KEY": "rk_live_abc",
        "STRIPE_PUBLISHABLE_KEY": "pk_live_abc",
        "STRIPE_API_BASE": "http://127.0.0.1:9",
    }
    with pytest.raises(ConfigError, match="a live key goes to"):
        config(**STRIPE | live)
