"""The control plane's environment: read once, typed, checked; a bad value is named in one line."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

Environment = Mapping[str, str]

SECRET_CHARACTERS_MIN = 16
SIGNUP_CREDIT_NANOS = 5_000_000_000
MINUTE_ROLLUP_DAYS = 14
LOG_FORMATS = ("console", "json")


class ConfigError(ValueError):
    """An environment variable is missing or bad; the message names it, its value and the wish."""


def text(environ: Environment, name: str, default: str | None = None) -> str:
    """Return a variable that must not be empty. Raises ConfigError."""
    value = environ.get(name) or default
    if not value:
        raise ConfigError(f"{name} is not set")
    return value


def secret(environ: Environment, name: str) -> str:
    """Return a secret: no default, some length, and never shown in an error. Raises ConfigError."""
    value = text(environ, name)
    if len(value) < SECRET_CHARACTERS_MIN:
        raise ConfigError(
            f"{name} has {len(value)} characters; wanted at least {SECRET_CHARACTERS_MIN}"
        )
    return value


def whole_number(environ: Environment, name: str, default: int, largest: int) -> int:
    """Return a whole number from 0 to `largest`. Raises ConfigError."""
    value = text(environ, name, str(default))
    if not (value.isascii() and value.isdecimal()) or int(value) > largest:
        raise ConfigError(f"{name} is {value!r}; wanted a whole number, 0 to {largest}")
    return int(value)


def port(environ: Environment, name: str, default: int) -> int:
    """Return a TCP port. Raises ConfigError."""
    return whole_number(environ, name, default, 2**16 - 1)


def switch(environ: Environment, name: str, default: bool = False) -> bool:
    """Return whether a 0/1 variable is on. Raises ConfigError."""
    value = text(environ, name, "1" if default else "0")
    if value not in ("0", "1"):
        raise ConfigError(f"{name} is {value!r}; wanted 0 or 1")
    return value == "1"


def one_of(environ: Environment, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of `allowed`, the first by default. Raises ConfigError."""
    value = text(environ, name, allowed[0])
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; wanted one of {', '.join(allowed)}")
    return value


def url(
    environ: Environment,
    name: str,
    default: str | None = None,
    schemes: tuple[str, ...] = ("http", "https"),
) -> str:
    """Return an address without its last slash. Raises ConfigError."""
    value = text(environ, name, default).rstrip("/")
    parts = urlsplit(value)
    if parts.scheme not in schemes or not (parts.hostname or parts.scheme == "unix"):
        raise ConfigError(f"{name} is {value!r}; wanted an address: {schemes[0]}://…")
    return value


@dataclass(frozen=True, slots=True)
class Database:
    """Where PostgreSQL is; `host` may be a socket's folder, `options` go to libpq."""

    name: str
    user: str
    password: str
    host: str
    port: str
    options: dict[str, str]

    @classmethod
    def from_url(cls, name: str, value: str) -> "Database":
        """Parse a libpq URL. Raises ConfigError, which does not repeat the password."""
        try:
            parts = {key: str(part) for key, part in conninfo_to_dict(value).items()}
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"{name} is no PostgreSQL address: wanted postgresql://…") from error
        if not parts.get("dbname"):
            raise ConfigError(f"{name} names no database; wanted postgresql://host/database")
        return cls(
            name=parts.pop("dbname"),
            user=parts.pop("user", ""),
            password=parts.pop("password", ""),
            host=parts.pop("host", ""),
            port=parts.pop("port", ""),
            options=parts,
        )


def owner(environ: Environment) -> Database:
    """Return the database as who migrates sees it; without two roles it is the application's.

    Raises ConfigError.
    """
    name = "DATABASE_OWNER_URL" if environ.get("DATABASE_OWNER_URL") else "DATABASE_URL"
    return Database.from_url(name, text(environ, name))


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """All that the control plane is told from outside. Money in nano-dollars."""

    database: Database
    database_owner: Database
    redis_url: str
    django_secret: str
    internal_secret: str
    key_pepper: str
    playground_secret: str
    console_url: str
    api_base: str
    fleet_url: str
    host: str
    port: int
    internal_host: str
    internal_port: int
    signup_credit_nanos: int
    debug: bool
    log_format: str
    static_dir: Path | None
    archive_dir: Path | None
    """Where archived usage lies; without it none is archived or shown."""
    minute_rollup_days: int
    """How long usage is known by the minute; by the hour it is known for good."""

    @property
    def is_https(self) -> bool:
        """Whether browsers reach the console over TLS; cookies are marked secure then."""
        return urlsplit(self.console_url).scheme == "https"

    @property
    def console_host(self) -> str:
        """The host name of the console, without a port."""
        return urlsplit(self.console_url).hostname or ""

    @classmethod
    def from_environment(cls, environ: Environment) -> "ControlConfig":
        """Read the variables of the control plane. Raises ConfigError naming the first bad one."""
        console_url = url(environ, "PENSTOCK_CONSOLE_URL", "http://127.0.0.1:8700")
        host = text(environ, "PENSTOCK_CONTROL_HOST", "127.0.0.1")
        static_dir = environ.get("PENSTOCK_STATIC_DIR")
        archive_dir = environ.get("PENSTOCK_ARCHIVE_DIR")
        return cls(
            database=Database.from_url("DATABASE_URL", text(environ, "DATABASE_URL")),
            database_owner=owner(environ),
            redis_url=url(environ, "REDIS_URL", schemes=("redis", "rediss", "unix")),
            django_secret=secret(environ, "PENSTOCK_DJANGO_SECRET"),
            internal_secret=secret(environ, "PENSTOCK_INTERNAL_SECRET"),
            key_pepper=secret(environ, "PENSTOCK_KEY_PEPPER"),
            playground_secret=secret(environ, "PENSTOCK_PLAYGROUND_SECRET"),
            console_url=console_url,
            api_base=url(environ, "PENSTOCK_API_BASE", "http://127.0.0.1:8701/v1"),
            fleet_url=url(environ, "PENSTOCK_FLEET_URL", "http://127.0.0.1:8704"),
            host=host,
            port=port(environ, "PENSTOCK_CONTROL_PORT", 8700),
            internal_host=text(environ, "PENSTOCK_CONTROL_INTERNAL_HOST", host),
            internal_port=port(environ, "PENSTOCK_CONTROL_INTERNAL_PORT", 8702),
            signup_credit_nanos=whole_number(
                environ, "PENSTOCK_SIGNUP_CREDIT_NANOS", SIGNUP_CREDIT_NANOS, 2**63 - 1
            ),
            debug=switch(environ, "PENSTOCK_DEBUG"),
            log_format=one_of(environ, "PENSTOCK_LOG_FORMAT", LOG_FORMATS),
            static_dir=Path(static_dir) if static_dir else None,
            archive_dir=Path(archive_dir) if archive_dir else None,
            minute_rollup_days=whole_number(
                environ, "PENSTOCK_MINUTE_ROLLUP_DAYS", MINUTE_ROLLUP_DAYS, 36_500
            ),
        )
