"""The control plane's configuration: environment variables, read once, typed and checked. An
invalid one is reported in one line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parseaddr
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from control.mail.server_url import MailServer
from serving.contract.client_address import Network
from serving.contract.credential import (
    ROOT_VARIABLE,
    ServiceAuthenticator,
    ServiceIdentity,
    callers_of,
    issue,
)
from serving.contract.environment import (
    ConfigError,
    Environment,
    named_urls,
    networks,
    newest_first,
    one_of,
    port,
    redis_url,
    secret,
    switch,
    text,
    url,
    whole_number,
)
from serving.contract.records import DEFAULT_FLEET

SIGNUP_CREDIT_NANOS = 5_000_000_000
MINUTE_USAGE_RETENTION_DAYS = 14
MANAGEMENT_API_RATE_LIMIT = 600
LOG_FORMATS = ("console", "json")


def callers(environ: Environment) -> ServiceAuthenticator:
    """Return the callers of the internal API. Raises ConfigError."""
    try:
        return callers_of(environ)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def servers(environ: Environment, name: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return servers by IP address, `10.0.0.2,[fd00::2]:5353`; none by default.

    Raises ConfigError.
    """
    value = environ.get(name, "")
    try:
        parts = [urlsplit(f"//{each.strip()}") for each in value.split(",") if each.strip()]
        found = [(str(ip_address(part.hostname or "")), part.port) for part in parts]
    except ValueError as error:
        raise ConfigError(
            f"{name} is {value!r}; wanted addresses: 10.0.0.2,[fd00::2]:53"
        ) from error
    return tuple((host, default_port if port is None else port) for host, port in found)


def mail_server(environ: Environment) -> MailServer:
    """Return the mail server, by default the local mailbox. Raises ConfigError without its URL."""
    try:
        return MailServer.from_url(text(environ, "EMAIL_URL", "database:"))
    except ValueError as error:
        raise ConfigError(f"EMAIL_URL does not fit: {error}") from error


def from_email(environ: Environment, default: str) -> str:
    """Return the sender of emails, `Name <address>`. Raises ConfigError."""
    value = text(environ, "PENSTOCK_FROM_EMAIL", default)
    _, address = parseaddr(value)
    if not value.isprintable() or "@" not in address:
        raise ConfigError(f"PENSTOCK_FROM_EMAIL is {value!r}; wanted Name <name@example.com>")
    return value


def support_email(environ: Environment) -> str:
    """Return the address that customers are told to write to; empty by default. Raises
    ConfigError."""
    value = environ.get("PENSTOCK_SUPPORT_EMAIL", "").strip()
    if value and (parseaddr(value)[1] != value or "@" not in value):
        raise ConfigError(f"PENSTOCK_SUPPORT_EMAIL is {value!r}; wanted support@example.com")
    return value


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL database; `host` may be the folder of a socket, `options` go to libpq."""

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
    """Return the database as its owner connects, for migrations; without two roles it is the
    application's. Raises ConfigError."""
    name = "DATABASE_OWNER_URL" if environ.get("DATABASE_OWNER_URL") else "DATABASE_URL"
    return Database.from_url(name, text(environ, name))


STRIPE_KEYS = ("STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET", "STRIPE_PUBLISHABLE_KEY")
STRIPE_API = "https://api.stripe.com"
STRIPE_SECRET = re.compile(r"(?:sk|rk)_(live|test)_\S+")
STRIPE_PUBLISHABLE = re.compile(r"pk_(live|test)_\S+")
STRIPE_WEBHOOK = re.compile(r"whsec_\S+")


@dataclass(frozen=True, slots=True)
class StripeKeys:
    """The operator's Stripe keys. `mode` is live or test."""

    secret: str = field(repr=False)
    publishable: str
    webhook_secrets: tuple[str, ...] = field(repr=False)
    """Several while one of them is being rotated."""
    mode: str
    api_base: str = STRIPE_API

    @classmethod
    def from_environment(cls, environ: Environment) -> "StripeKeys | None":
        """Read the three keys; None if none is set. Raises ConfigError, which shows no secret.

        `STRIPE_WEBHOOK_SECRET` may hold several, separated by commas. A live key is sent to Stripe
        only.
        """
        given = [name for name in STRIPE_KEYS if environ.get(name)]
        if not given:
            return None
        missing = [name for name in STRIPE_KEYS if name not in given]
        if missing:
            words = f"set all of {', '.join(STRIPE_KEYS)}, or none to run without Stripe"
            raise ConfigError(f"{missing[0]} is not set, but {given[0]} is; {words}")
        api_base = url(environ, "STRIPE_API_BASE", STRIPE_API)
        secret_mode = _stripe_mode(environ, "STRIPE_SECRET_KEY", STRIPE_SECRET, "sk_test_…")
        mode = _stripe_mode(environ, "STRIPE_PUBLISHABLE_KEY", STRIPE_PUBLISHABLE, "pk_test_…")
        if mode != secret_mode:
            raise ConfigError(
                f"STRIPE_SECRET_KEY is of {secret_mode} mode, STRIPE_PUBLISHABLE_KEY of {mode} mode"
            )
        if mode == "live" and api_base != STRIPE_API:
            raise ConfigError(f"STRIPE_API_BASE is {api_base!r}; a live key goes to {STRIPE_API}")
        secrets = tuple(part.strip() for part in environ["STRIPE_WEBHOOK_SECRET"].split(","))
        if not all(STRIPE_WEBHOOK.fullmatch(each) for each in secrets):
            raise ConfigError("STRIPE_WEBHOOK_SECRET is no list of signing secrets: wanted whsec_…")
        return cls(
            secret=environ["STRIPE_SECRET_KEY"],
            publishable=environ["STRIPE_PUBLISHABLE_KEY"],
            webhook_secrets=secrets,
            mode=mode,
            api_base=api_base,
        )


def _stripe_mode(environ: Environment, name: str, form: re.Pattern[str], wanted: str) -> str:
    match = form.fullmatch(environ[name])
    if match is None:
        raise ConfigError(f"{name} is no such key of Stripe's: wanted {wanted}")
    return match[1]


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """The configuration of the control plane. Money is in nano-dollars."""

    database: Database
    database_owner: Database
    redis_url: str
    secret_key: str
    internal_secret: str = field(repr=False)
    """Credentials of the internal API are derived from it."""
    credential: str
    """Sent to the fleet."""
    callers: ServiceAuthenticator
    """The services that may call the internal API."""
    key_peppers: tuple[str, ...]
    """Newest first: the first one makes digests of API keys, all verify them."""
    encryption_keys: tuple[str, ...] = field(repr=False)
    """Newest first: the first one encrypts stored secrets, all decrypt them. No gateway has
    them."""
    playground_secret: str
    console_url: str
    gateway_public_url: str
    fleet_urls: Mapping[str, str]
    """The URL of each fleet, by its id."""
    host: str
    port: int
    internal_api_host: str
    internal_api_port: int
    trusted_proxies: tuple[Network, ...]
    """Proxies whose X-Forwarded-For and -Proto headers count."""
    proxy_protocol_from: tuple[Network, ...]
    """Load balancers whose connections to the public listener begin with a PROXY header."""
    signup_credit_nanos: int
    mail_server: MailServer
    from_email: str
    management_api_rate_limit: int
    """The management API's rate limit for one person or API key."""
    egress_allow_http: bool
    """Whether webhooks may be sent without TLS."""
    egress_allowed_networks: tuple[Network, ...]
    """Private networks that webhooks may be sent to, and that documents of identity providers may
    be read from."""
    debug: bool
    log_format: str
    static_dir: Path | None
    archive_dir: Path | None
    """The folder of archived usage; without it none is archived or shown."""
    minute_usage_retention_days: int
    """Days for which usage is kept by the minute; by the hour it is kept forever."""
    stripe: StripeKeys | None = None
    """None if the operator takes payments by other means and records them."""
    dns_servers: tuple[tuple[str, int], ...] = ()
    """DNS servers for verifying domains; the system's own by default."""
    support_email: str = ""
    """The operator's address for customers; pages and emails name it."""
    traces_endpoint: str | None = None
    """Turns tracing on; the exporter reads OpenTelemetry's variables itself."""

    @property
    def is_https(self) -> bool:
        """Whether browsers reach the console over TLS; cookies are then marked secure."""
        return urlsplit(self.console_url).scheme == "https"

    @property
    def console_host(self) -> str:
        """The host name of the console, without a port."""
        return urlsplit(self.console_url).hostname or ""

    @classmethod
    def from_environment(cls, environ: Environment) -> "ControlConfig":
        """Read the environment. Raises ConfigError naming the first invalid variable."""
        console_url = url(environ, "PENSTOCK_CONSOLE_URL", "http://127.0.0.1:8700")
        host = text(environ, "PENSTOCK_CONTROL_HOST", "127.0.0.1")
        static_dir = environ.get("PENSTOCK_STATIC_DIR")
        archive_dir = environ.get("PENSTOCK_ARCHIVE_DIR")
        return cls(
            database=Database.from_url("DATABASE_URL", text(environ, "DATABASE_URL")),
            database_owner=owner(environ),
            redis_url=redis_url(environ, "REDIS_URL"),
            secret_key=secret(environ, "PENSTOCK_SECRET_KEY"),
            internal_secret=secret(environ, ROOT_VARIABLE),
            credential=issue(secret(environ, ROOT_VARIABLE), ServiceIdentity("control", "control")),
            callers=callers(environ),
            key_peppers=newest_first(
                environ, "PENSTOCK_KEY_PEPPER", "PENSTOCK_KEY_PEPPERS_PREVIOUS"
            ),
            encryption_keys=newest_first(
                environ, "PENSTOCK_ENCRYPTION_KEY", "PENSTOCK_ENCRYPTION_KEYS_PREVIOUS"
            ),
            playground_secret=secret(environ, "PENSTOCK_PLAYGROUND_SECRET"),
            console_url=console_url,
            gateway_public_url=url(
                environ, "PENSTOCK_GATEWAY_PUBLIC_URL", "http://127.0.0.1:8701/v1"
            ),
            fleet_urls=named_urls(
                environ, "PENSTOCK_FLEET_URL", DEFAULT_FLEET, "http://127.0.0.1:8704"
            ),
            host=host,
            port=port(environ, "PENSTOCK_CONTROL_PORT", 8700),
            internal_api_host=text(environ, "PENSTOCK_INTERNAL_API_HOST", host),
            internal_api_port=port(environ, "PENSTOCK_INTERNAL_API_PORT", 8702),
            trusted_proxies=networks(environ, "PENSTOCK_TRUSTED_PROXIES"),
            proxy_protocol_from=networks(environ, "PENSTOCK_PROXY_PROTOCOL_FROM"),
            signup_credit_nanos=whole_number(
                environ, "PENSTOCK_SIGNUP_CREDIT_NANOS", SIGNUP_CREDIT_NANOS, 2**63 - 1
            ),
            mail_server=mail_server(environ),
            from_email=from_email(environ, f"Penstock <noreply@{urlsplit(console_url).hostname}>"),
            management_api_rate_limit=whole_number(
                environ, "PENSTOCK_MANAGEMENT_API_RATE_LIMIT", MANAGEMENT_API_RATE_LIMIT, 10**9
            ),
            egress_allow_http=switch(environ, "PENSTOCK_EGRESS_ALLOW_HTTP"),
            egress_allowed_networks=networks(environ, "PENSTOCK_EGRESS_ALLOWED_NETWORKS"),
            debug=switch(environ, "PENSTOCK_DEBUG"),
            log_format=one_of(environ, "PENSTOCK_LOG_FORMAT", LOG_FORMATS),
            static_dir=Path(static_dir) if static_dir else None,
            archive_dir=Path(archive_dir) if archive_dir else None,
            minute_usage_retention_days=whole_number(
                environ, "PENSTOCK_MINUTE_USAGE_RETENTION_DAYS", MINUTE_USAGE_RETENTION_DAYS, 36_500
            ),
            stripe=StripeKeys.from_environment(environ),
            dns_servers=servers(environ, "PENSTOCK_DNS_SERVERS", 53),
            support_email=support_email(environ),
            traces_endpoint=environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        )
