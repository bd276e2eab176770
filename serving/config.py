"""A process's configuration: read once at its edge, typed, checked; a bad value is named."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from serving.contract.client_address import Network
from serving.contract.credential import Caller

Environment = Mapping[str, str]

SECRET_CHARACTERS_MIN = 16


class ConfigError(ValueError):
    """An environment variable is missing or bad; the message names it and what was wanted."""


def text(environ: Environment, name: str, default: str | None = None) -> str:
    """Return a variable that must not be empty. Raises ConfigError."""
    value = environ.get(name) or default
    if not value:
        raise ConfigError(f"{name} is not set")
    return value


def secret(environ: Environment, name: str) -> str:
    """Return a secret, which has no default and some length. Raises ConfigError."""
    value = text(environ, name)
    if len(value) < SECRET_CHARACTERS_MIN:
        raise ConfigError(f"{name} is too short; wanted at least {SECRET_CHARACTERS_MIN} letters")
    return value


def credential(environ: Environment, name: str) -> str:
    """Return our credential, from a variable or from the file that `{name}_FILE` names. Raises
    ConfigError, which does not repeat it."""
    value = environ.get(name)
    if not value:
        path = Path(text(environ, f"{name}_FILE"))
        try:
            value = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}_FILE is {str(path)!r}, which can't be read") from error
    try:
        Caller.read(value.rpartition(".")[0])
    except ValueError as error:
        wanted = "what `penstock internal-credential` prints"
        raise ConfigError(f"{name} is no credential; wanted {wanted}") from error
    return value


def peppers(environ: Environment) -> tuple[str, ...]:
    """Return what digests of keys are made with: the newest, which makes them, and after it those
    that made some before (`PENSTOCK_KEY_PEPPERS_OLD`, with blanks between). Raises ConfigError."""
    old = environ.get("PENSTOCK_KEY_PEPPERS_OLD", "").split()
    if any(len(each) < SECRET_CHARACTERS_MIN for each in old):
        raise ConfigError(
            f"PENSTOCK_KEY_PEPPERS_OLD has a short one; wanted {SECRET_CHARACTERS_MIN} letters each"
        )
    return (secret(environ, "PENSTOCK_KEY_PEPPER"), *old)


def port(environ: Environment, name: str, default: int | None = None) -> int:
    """Return a TCP port. Raises ConfigError."""
    value = text(environ, name, None if default is None else str(default))
    if not value.isdecimal() or int(value) >= 2**16:
        raise ConfigError(f"{name} is {value!r}; wanted a port, 0 to 65535")
    return int(value)


def url(environ: Environment, name: str) -> str:
    """Return an http(s) address without its last slash. Raises ConfigError."""
    value = text(environ, name).rstrip("/")
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{name} is {value!r}; wanted an http:// or https:// address")
    return value


def seconds(environ: Environment, name: str, default: float | None = None) -> float | None:
    """Return a number of seconds; the default when it is not set. Raises ConfigError."""
    value = environ.get(name)
    if not value:
        return default
    if not value.replace(".", "", 1).isdecimal():
        raise ConfigError(f"{name} is {value!r}; wanted seconds, such as 30 or 0.5")
    return float(value)


def patience(environ: Environment, name: str, default: float) -> float:
    """Return for how long something is waited for, which is some time. Raises ConfigError."""
    value = seconds(environ, name, default)
    if not value:
        raise ConfigError(f"{name} is 0; wanted seconds, more than none")
    return value


def count(environ: Environment, name: str) -> int | None:
    """Return a number of things, at least 1; None when it is not set. Raises ConfigError."""
    value = environ.get(name)
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise ConfigError(f"{name} is {value!r}; wanted a number, at least 1")
    return int(value)


def redis_url(environ: Environment, name: str) -> str | None:
    """Return the address of a Redis; None when it is not set. Raises ConfigError."""
    value = environ.get(name)
    if not value:
        return None
    if urlsplit(value).scheme not in ("redis", "rediss", "unix"):
        raise ConfigError(f"{name} is {value!r}; wanted a redis://, rediss:// or unix:// address")
    return value


def networks(environ: Environment, name: str) -> tuple[Network, ...]:
    """Return networks, `10.0.0.0/8,fd00::/8`; none by default. Raises ConfigError."""
    value = environ.get(name, "")
    try:
        return tuple(ip_network(each.strip()) for each in value.split(",") if each.strip())
    except ValueError as error:
        raise ConfigError(f"{name} is {value!r}; wanted networks: 10.0.0.0/8,fd00::/8") from error


def descriptor(environ: Environment, name: str) -> int | None:
    """Return the number of an open file; None when it is not set. Raises ConfigError."""
    value = environ.get(name)
    if not value:
        return None
    if not (value.isascii() and value.isdecimal()):
        raise ConfigError(f"{name} is {value!r}; wanted the number of a listening socket")
    return int(value)


def directory(environ: Environment, name: str) -> Path | None:
    """Return a folder that is there; None when it is not set. Raises ConfigError."""
    value = environ.get(name)
    if not value:
        return None
    if not Path(value).is_dir():
        raise ConfigError(f"{name} is {value!r}; wanted a folder")
    return Path(value)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All that a gateway is told from outside."""

    host: str
    port: int
    operator_host: str
    operator_port: int
    directory: Path
    control_url: str
    fleet_url: str
    credential: str
    """Shown to control and the fleet."""
    key_peppers: tuple[str, ...]
    """The newest first; digests of keys are of any of them."""
    salt_secret: str
    log_format: str = "console"
    traces_endpoint: str | None = None
    listening_descriptor: int | None = None
    """A socket that whoever started us listens on; else we listen on `host` and `port`."""
    siblings_directory: Path | None = None
    """Where the folders of all gateways of this host are, ours among them."""
    lame_duck_seconds: float = 0.0
    """For how long, when told to end, we go on taking requests while `/readyz` says no."""
    drain_seconds: float | None = None
    """For how long requests may then go on; None is as long as the longest may last."""
    connections_of_address_max: int | None = None
    """None is a fourth of all that are possible."""
    body_begins_seconds: float = 10.0
    """For how long a client that asked may send nothing of the body that it announced."""
    demand_report_seconds: float = 0.2
    """Between two reports of demand to the fleet, however much changes."""
    usage_gather_seconds: float = 0.1
    """How long usage events gather before a batch of them leaves for billing."""
    redis_url: str | None = None
    """Where rate limits are counted for all gateways; else each holds callers to its part."""
    trusted_proxies: tuple[Network, ...] = ()
    """Whose `X-Forwarded-For` counts."""
    proxy_protocol_from: tuple[Network, ...] = ()
    """Whose connections begin with a PROXY header."""

    @classmethod
    def from_environment(cls, environ: Environment) -> "GatewayConfig":
        """Read the variables of a gateway. Raises ConfigError naming the first bad one."""
        return cls(
            host=text(environ, "PENSTOCK_GATEWAY_HOST", "127.0.0.1"),
            port=port(environ, "PENSTOCK_GATEWAY_PORT", 8701),
            operator_host=text(environ, "PENSTOCK_GATEWAY_OPERATOR_HOST", "127.0.0.1"),
            operator_port=port(environ, "PENSTOCK_GATEWAY_OPERATOR_PORT", 8703),
            directory=Path(text(environ, "PENSTOCK_GATEWAY_DIR")),
            control_url=url(environ, "PENSTOCK_CONTROL_URL"),
            fleet_url=url(environ, "PENSTOCK_FLEET_URL"),
            credential=credential(environ, "PENSTOCK_INTERNAL_CREDENTIAL"),
            key_peppers=peppers(environ),
            salt_secret=secret(environ, "PENSTOCK_SALT_SECRET"),
            log_format=text(environ, "PENSTOCK_LOG_FORMAT", "console"),
            traces_endpoint=environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
            listening_descriptor=descriptor(environ, "PENSTOCK_GATEWAY_FD"),
            siblings_directory=directory(environ, "PENSTOCK_GATEWAYS_DIR"),
            lame_duck_seconds=seconds(environ, "PENSTOCK_LAME_DUCK_SECONDS") or 0.0,
            drain_seconds=seconds(environ, "PENSTOCK_DRAIN_SECONDS"),
            connections_of_address_max=count(environ, "PENSTOCK_CONNECTIONS_OF_ADDRESS_MAX"),
            body_begins_seconds=patience(environ, "PENSTOCK_BODY_BEGINS_SECONDS", 10.0),
            redis_url=redis_url(environ, "REDIS_URL"),
            trusted_proxies=networks(environ, "PENSTOCK_TRUSTED_PROXIES"),
            proxy_protocol_from=networks(environ, "PENSTOCK_GATEWAY_PROXY_PROTOCOL_FROM"),
        )
