"""What a gateway is told from outside, and its bounds by the machine: open files and memory."""

import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from serving.config import credential
from serving.contract.client_address import Network
from serving.contract.environment import (
    ConfigError,
    Environment,
    named_urls,
    networks,
    newest_first,
    port,
    redis_url,
    seconds,
    secret,
    text,
    timeout,
    url,
)
from serving.contract.records import DEFAULT_FLEET
from serving.gateway.http.request import BODIES_BYTES_MAX
from serving.gateway.http.write_buffer import ALL_PENDING_BYTES_MAX
from serving.gateway.idempotency.execution import ALL_COPIES_BYTES_MAX

OPEN_FILES_MAX = 65_536
OPEN_FILES_RESERVED = 128
"""Journal, logs, control, fleet, processes beside."""
OPEN_FILES_MIN = 256
FILES_OF_REQUEST = 2
"""Its client's connection, and one to an engine."""


def raise_open_files_limit() -> int:
    """Raise the limit of open files as far as we may, and return it. Raises ConfigError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, OPEN_FILES_MAX) if hard != resource.RLIM_INFINITY else OPEN_FILES_MAX
    if limit > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit < OPEN_FILES_MIN:
        raise ConfigError(
            f"{limit} files may be open; wanted at least {OPEN_FILES_MIN} (ulimit -Hn)"
        )
    return limit


def connections_max(limit: int) -> int:
    """Return how many clients may be connected where so many files may be open."""
    return (limit - OPEN_FILES_RESERVED) // FILES_OF_REQUEST


CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


class MemoryBounds(NamedTuple):
    """Bytes that a gateway holds at most."""

    bodies: int
    """Of requests."""
    pending: int
    """Of answers that slow clients have not taken."""
    copies: int
    """Of answers that are recorded under idempotency keys."""


def memory_bounds(limit_bytes: int) -> MemoryBounds:
    """Return the bounds of a process that may have so many bytes: half of them together, and no
    more than the usual bounds, which 2 GiB allow."""
    return MemoryBounds(
        min(BODIES_BYTES_MAX, limit_bytes // 4),
        min(ALL_PENDING_BYTES_MAX, limit_bytes // 8),
        min(ALL_COPIES_BYTES_MAX, limit_bytes // 8),
    )


def memory_limit_bytes(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return how much memory this process may have: the machine's, or less where one of its cgroups
    (version 2 or 1) has a lower limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> Iterator[int]:
    """Yield the limits of our cgroups and of those above them. In a container the path that the
    kernel tells may lie outside of what is mounted: then the mount itself is our cgroup."""
    for file in _limit_files(cgroups, own):
        try:
            yield int(file.read_text())
        except (OSError, ValueError):
            continue  # There is no such cgroup here, or its limit is `max`.


def _limit_files(cgroups: Path, own: Path) -> Iterator[Path]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        cgroup = mount / path.lstrip("/")
        for folder in (cgroup, *cgroup.parents):
            if folder.is_relative_to(mount):
                yield folder / name


def count(environ: Environment, name: str) -> int | None:
    """Return a number of things, at least 1; None when it is not set. Raises ConfigError."""
    value = environ.get(name)
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise ConfigError(f"{name} is {value!r}; wanted a number, at least 1")
    return int(value)


def drain_seconds(environ: Environment) -> float | None:
    """Return how long requests may go on after the end of admission; None when it is not set.
    Raises ConfigError."""
    name = "PENSTOCK_DRAIN_SECONDS"
    return seconds(environ, name, 0.0) if environ.get(name) else None


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
    fleet_urls: Mapping[str, str]
    """Of each fleet whose replicas may be used, by its id."""
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
            directory=Path(text(environ, "PENSTOCK_GATEWAY_DATA_DIR")),
            control_url=url(environ, "PENSTOCK_INTERNAL_API_URL"),
            fleet_urls=named_urls(environ, "PENSTOCK_FLEET_URL", DEFAULT_FLEET),
            credential=credential(environ, "PENSTOCK_INTERNAL_CREDENTIAL"),
            key_peppers=newest_first(
                environ, "PENSTOCK_KEY_PEPPER", "PENSTOCK_KEY_PEPPERS_PREVIOUS"
            ),
            salt_secret=secret(environ, "PENSTOCK_SALT_SECRET"),
            log_format=text(environ, "PENSTOCK_LOG_FORMAT", "console"),
            traces_endpoint=environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
            listening_descriptor=descriptor(environ, "PENSTOCK_GATEWAY_FD"),
            siblings_directory=directory(environ, "PENSTOCK_GATEWAYS_DATA_DIR"),
            lame_duck_seconds=seconds(environ, "PENSTOCK_LAME_DUCK_SECONDS", 0.0),
            drain_seconds=drain_seconds(environ),
            connections_of_address_max=count(environ, "PENSTOCK_MAX_CONNECTIONS_PER_ADDRESS"),
            body_begins_seconds=timeout(environ, "PENSTOCK_BODY_START_TIMEOUT_SECONDS", 10.0),
            redis_url=redis_url(environ, "REDIS_URL") if environ.get("REDIS_URL") else None,
            trusted_proxies=networks(environ, "PENSTOCK_TRUSTED_PROXIES"),
            proxy_protocol_from=networks(environ, "PENSTOCK_PROXY_PROTOCOL_FROM"),
        )
