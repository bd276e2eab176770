"""Readers of environment variables, shared by all processes. Each returns a typed value or raises
ConfigError, which names the variable, its value (never a secret's) and the expected form."""

import re
from collections.abc import Mapping
from ipaddress import ip_network
from urllib.parse import urlsplit

from serving.contract.client_address import Network

Environment = Mapping[str, str]

SECRET_CHARACTERS_MIN = 16
PORT_MAX = 2**16 - 1
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class ConfigError(ValueError):
    """An environment variable is missing or invalid."""


def text(environ: Environment, name: str, default: str | None = None) -> str:
    """Return a variable that must not be empty."""
    value = environ.get(name) or default
    if not value:
        raise ConfigError(f"{name} is not set")
    return value


def secret(environ: Environment, name: str) -> str:
    """Return a secret of at least `SECRET_CHARACTERS_MIN` characters; it has no default."""
    value = text(environ, name)
    if len(value) < SECRET_CHARACTERS_MIN:
        raise ConfigError(
            f"{name} has {len(value)} characters; wanted at least {SECRET_CHARACTERS_MIN}"
        )
    return value


def newest_first(environ: Environment, name: str, previous_name: str) -> tuple[str, ...]:
    """Return the newest of some secrets, followed by the previous ones (in `previous_name`,
    separated by blanks)."""
    previous = environ.get(previous_name, "").split()
    if any(len(value) < SECRET_CHARACTERS_MIN for value in previous):
        raise ConfigError(
            f"{previous_name} has a short one;"
            f" wanted at least {SECRET_CHARACTERS_MIN} characters each"
        )
    return (secret(environ, name), *previous)


def whole_number(
    environ: Environment, name: str, default: int, largest: int, smallest: int = 0
) -> int:
    """Return a whole number from `smallest` to `largest`."""
    value = text(environ, name, str(default))
    if not (value.isascii() and value.isdecimal() and smallest <= int(value) <= largest):
        raise ConfigError(f"{name} is {value!r}; wanted a whole number, {smallest} to {largest}")
    return int(value)


def port(environ: Environment, name: str, default: int) -> int:
    """Return a TCP port."""
    return whole_number(environ, name, default, PORT_MAX)


def switch(environ: Environment, name: str, default: bool = False) -> bool:
    """Return whether a 0/1 variable is on."""
    value = text(environ, name, "1" if default else "0")
    if value not in ("0", "1"):
        raise ConfigError(f"{name} is {value!r}; wanted 0 or 1")
    return value == "1"


def one_of(environ: Environment, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of `allowed`, the first by default."""
    value = text(environ, name, allowed[0])
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; wanted one of {', '.join(allowed)}")
    return value


def seconds(environ: Environment, name: str, default: float) -> float:
    """Return a number of seconds, 0 or more."""
    value = environ.get(name)
    if not value:
        return default
    if not (value.isascii() and value.replace(".", "", 1).isdecimal()):
        raise ConfigError(f"{name} is {value!r}; wanted seconds, such as 30 or 0.5")
    return float(value)


def timeout(environ: Environment, name: str, default: float) -> float:
    """Return a number of seconds, more than 0."""
    value = seconds(environ, name, default)
    if not value:
        raise ConfigError(f"{name} is 0; wanted more than 0 seconds")
    return value


def url(
    environ: Environment,
    name: str,
    default: str | None = None,
    schemes: tuple[str, ...] = ("http", "https"),
) -> str:
    """Return a URL without a trailing slash."""
    value = text(environ, name, default).rstrip("/")
    parts = urlsplit(value)
    if parts.scheme not in schemes or not (parts.hostname or parts.scheme == "unix"):
        forms = ", ".join(f"{scheme}://…" for scheme in schemes)
        raise ConfigError(f"{name} is {value!r}; wanted a URL: {forms}")
    return value


def named_urls(
    environ: Environment, name: str, only: str, default: str | None = None
) -> dict[str, str]:
    """Return URLs by name, of `eu=http://…,us=http://…`; a URL without a name has the name
    `only`."""
    value = text(environ, name, default)
    if "=" not in value.split("://")[0]:
        return {only: url(environ, name, default)}
    urls = {}
    for part in value.split(","):
        key, _, address = part.strip().partition("=")
        if not IDENTIFIER.fullmatch(key) or key in urls:
            raise ConfigError(f"{name} is {value!r}; wanted NAME=http://…, each name once")
        urls[key] = url({name: address}, name)
    return urls


def redis_url(environ: Environment, name: str) -> str:
    """Return the URL of a Redis server."""
    return url(environ, name, schemes=("redis", "rediss", "unix"))


def networks(environ: Environment, name: str) -> tuple[Network, ...]:
    """Return networks, `10.0.0.0/8,fd00::/8`; none by default."""
    value = environ.get(name, "")
    try:
        return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
    except ValueError as error:
        raise ConfigError(f"{name} is {value!r}; wanted networks: 10.0.0.0/8,fd00::/8") from error
