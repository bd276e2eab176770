"""Checks of the configuration for production: each flaw by its variable, with what to do.

`docs/operate/security.md` says why. A *must* flaw fails `penstock check --deploy`; a *should* flaw
is only reported.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from control.config import ControlConfig, Database

Level = Literal["must", "should"]
SECRET_CHARACTERS = 32
SECRET_VARIETY = 10
GUESSABLE = ("changeme", "change-me", "secret", "password", "example", "test-")
VERIFIED_TLS = ("verify-ca", "verify-full")


@dataclass(frozen=True, slots=True)
class Flaw:
    """One flaw, by the name of its variable or component."""

    level: Level
    name: str
    words: str


def flaws(config: ControlConfig) -> list[Flaw]:
    """Return the flaws that the variables alone show."""
    return [
        *_address_flaws(config),
        *_secret_flaws(config),
        *_mail_flaws(config),
        *_store_flaws(config),
        *_other_flaws(config),
    ]


def _address_flaws(config: ControlConfig) -> Iterator[Flaw]:
    if not config.is_https:
        words = (
            "is http: passwords and sessions cross the network unencrypted. Put TLS in front of it"
        )
        yield Flaw("must", "PENSTOCK_CONSOLE_URL", words)
    if is_local(config.console_host):
        words = (
            f"is {config.console_host}: links in emails lead nowhere, and passkeys need a host name"
        )
        yield Flaw("must", "PENSTOCK_CONSOLE_URL", words)
    gateway_url = config.gateway_public_url
    if urlsplit(gateway_url).scheme != "https" or is_local(_host(gateway_url)):
        words = "is not https on a host name: API keys cross the network unencrypted"
        yield Flaw("must", "PENSTOCK_GATEWAY_PUBLIC_URL", words)
    if not (config.trusted_proxies or config.proxy_protocol_from):
        words = (
            "is not set, and neither is PENSTOCK_PROXY_PROTOCOL_FROM: all clients share the load"
            " balancer's address and its limits"
        )
        yield Flaw("must", "PENSTOCK_TRUSTED_PROXIES", words)
    for name, networks in (
        ("PENSTOCK_TRUSTED_PROXIES", config.trusted_proxies),
        ("PENSTOCK_PROXY_PROTOCOL_FROM", config.proxy_protocol_from),
    ):
        for network in networks:
            if not network.prefixlen:
                yield Flaw("must", name, f"has {network}: any client can claim any address")
    if config.internal_api_host in ("0.0.0.0", "::"):  # noqa: S104  (compared, not bound)
        words = f"is {config.internal_api_host}: the internal API answers on every network"
        yield Flaw("must", "PENSTOCK_INTERNAL_API_HOST", words)
    elif config.internal_api_host == config.host and not _is_private(config.host):
        words = "is the public address too: give the internal API a private address"
        yield Flaw("must", "PENSTOCK_INTERNAL_API_HOST", words)


def _secret_flaws(config: ControlConfig) -> Iterator[Flaw]:
    secrets = [
        ("PENSTOCK_SECRET_KEY", config.secret_key),
        ("PENSTOCK_INTERNAL_SECRET", config.internal_secret),
        ("PENSTOCK_KEY_PEPPER", config.key_peppers[0]),
        ("PENSTOCK_ENCRYPTION_KEY", config.encryption_keys[0]),
        ("PENSTOCK_PLAYGROUND_SECRET", config.playground_secret),
    ]
    uses = Counter(value for _, value in secrets)
    for name, value in secrets:
        if len(value) < SECRET_CHARACTERS or len(set(value)) < SECRET_VARIETY:
            words = f"is too easy to guess: use {SECRET_CHARACTERS} random characters"
            yield Flaw("must", name, words)
        elif any(word in value.lower() for word in GUESSABLE):
            yield Flaw("must", name, "is an example value: generate your own")
        if uses[value] > 1:
            yield Flaw("must", name, "is the same as another secret: use a different one for each")


def _mail_flaws(config: ControlConfig) -> Iterator[Flaw]:
    server = config.mail_server
    if server.is_mailbox:
        words = "is the mailbox: no email is sent, and operators can read live links"
        yield Flaw("must", "EMAIL_URL", words)
    elif server.host and not (server.use_tls or server.use_ssl or _is_loopback(server.host)):
        yield Flaw(
            "must", "EMAIL_URL", "sends without TLS: password reset links can be read on the way"
        )
    if not config.support_email:
        words = "is not set: customers are not told whom to ask when they are suspended"
        yield Flaw("should", "PENSTOCK_SUPPORT_EMAIL", words)
    domain = config.from_email.rpartition("@")[2].rstrip("> ")
    if is_local(domain):
        words = f"has the domain {domain}: emails will be treated as spam"
        yield Flaw("must", "PENSTOCK_FROM_EMAIL", words)


def _store_flaws(config: ControlConfig) -> Iterator[Flaw]:
    yield from _database_flaws("DATABASE_URL", config.database)
    parts = urlsplit(config.redis_url)
    is_remote = parts.scheme != "unix" and not is_local(parts.hostname or "")
    if parts.scheme != "unix" and not parts.password:
        words = "has no password: anyone who reaches Redis can run tasks as the platform"
        yield Flaw("must", "REDIS_URL", words)
    if is_remote and parts.scheme != "rediss":
        yield Flaw("should", "REDIS_URL", "is without TLS (rediss://)")


def _database_flaws(name: str, database: Database) -> Iterator[Flaw]:
    is_near = not database.host or database.host.startswith("/") or is_local(database.host)
    if not is_near and database.options.get("sslmode") not in VERIFIED_TLS:
        words = "does not verify the server (sslmode=verify-full): others could read everything"
        yield Flaw("must", name, words)


def _other_flaws(config: ControlConfig) -> Iterator[Flaw]:
    if config.debug:
        yield Flaw("must", "PENSTOCK_DEBUG", "is on: errors show code and settings to everyone")
    if config.egress_allow_http:
        yield Flaw("must", "PENSTOCK_EGRESS_ALLOW_HTTP", "is on: webhooks may be sent without TLS")
    if config.egress_allowed_networks:
        listed = ", ".join(map(str, config.egress_allowed_networks))
        words = f"lets customers' webhooks into {listed}: are these meant to be reached?"
        yield Flaw("should", "PENSTOCK_EGRESS_ALLOWED_NETWORKS", words)
    if config.stripe is not None and config.stripe.mode == "test":
        yield Flaw("must", "STRIPE_SECRET_KEY", "is a test key: nobody is charged")
    if config.log_format != "json":
        yield Flaw("should", "PENSTOCK_LOG_FORMAT", "is not json: log searches need JSON")
    if config.static_dir is None:
        words = "is not set: static files are served without versioned names"
        yield Flaw("should", "PENSTOCK_STATIC_DIR", words)
    if config.archive_dir is None:
        yield Flaw("should", "PENSTOCK_ARCHIVE_DIR", "is not set: old usage stays in the database")


def is_local(host: str) -> bool:
    """Return whether a name or address is this machine's, or not a public name."""
    if host.endswith((".local", ".localhost", ".invalid")) or ("." not in host and ":" not in host):
        return True
    return _is_loopback(host)


def _is_private(host: str) -> bool:
    """Return whether only this machine or a private network reaches an address."""
    try:
        return is_local(host) or ip_address(host).is_private
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    """Return whether what is sent there stays on this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
