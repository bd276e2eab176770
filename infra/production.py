"""`penstock init --production`: the configuration of a production platform, with fresh secrets."""

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from infra.local.config import ROOT, LocalError
from serving.contract.credential import NAME, ServiceIdentity, issue
from serving.contract.environment import ConfigError, networks

HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
DATA_DIR = "/var/lib/penstock"
PORTS_OF_A_GATEWAY = 10
"""Ports between those of two gateways of a host; the first has 8701 and 8703."""
LAME_DUCK_SECONDS = 5
"""Longer than two probes of a load balancer."""
GATEWAY_RIGHTS = (
    "~{limits}:* resetchannels &penstock:prefixes:*"
    " +@scripting +@read +@write +@hash +ping +time +@pubsub"
)


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices of the operator. Hosts are names or IP addresses without a port."""

    domain: str
    """Its `console.` and `api.` are the names that customers use."""
    gateways: Sequence[str] = ("1",)
    database_host: str = "127.0.0.1"
    redis_host: str = "127.0.0.1"
    private_address: str = "127.0.0.1"
    """Control's host's, for listeners that only the platform's processes reach."""
    trusted_proxies: str = "127.0.0.1/32"
    fleet_address: str = ""
    """The private address of the host of fleet and gateways, if that is another."""

    @property
    def engine_host(self) -> str:
        """The address of the host of fleet and gateways."""
        return self.fleet_address or self.private_address


@dataclass(frozen=True, slots=True)
class Secrets:
    """A secret for each use; each is 43 characters of base64url, as 256 bits are."""

    database_owner: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    database_app: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    redis: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    redis_gateway: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    django: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    encryption: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    playground: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    pepper: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    internal: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    salt: str = field(default_factory=lambda: secrets.token_urlsafe(32))


def configuration(choices: Choices) -> dict[str, str]:
    """Return the content of each file by its name; all secrets are new. Raises LocalError for a
    choice that is none."""
    _check(choices)
    new = Secrets()
    gateways = {
        f"gateway-{name}.env": _gateway(choices, new, name, number)
        for number, name in enumerate(choices.gateways)
    }
    return {
        "control.env": _control(choices, new),
        "owner.env": _owner(choices, new),
        "fleet.env": _fleet(choices, new),
        **gateways,
        "roles.sql": _roles(new),
        "redis.acl": _redis_users(new),
    }


def write_files(folder: Path, texts: dict[str, str]) -> None:
    """Write the files, readable by their owner alone. Raises LocalError, with nothing written, if
    one of them exists."""
    if existing := [name for name in texts if (folder / name).exists()]:
        raise LocalError(
            f"{folder} holds {', '.join(existing)}, whose secrets may be in use; nothing was"
            " written. Name another folder, or move them away"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).touch(mode=0o600, exist_ok=False)
            (folder / name).write_text(text)
    except OSError as error:
        raise LocalError(f"{error.filename} cannot be written: {error.strerror}") from error


def next_steps(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield lines that say what to do with the files."""
    yield f"Wrote to {folder}: {', '.join(names)}."
    yield "They hold all secrets of the platform: keep a copy apart from the database."
    yield ""
    yield "Next:"
    yield "  1. In control.env, set EMAIL_URL and PENSTOCK_SUPPORT_EMAIL, for payments Stripe's."
    yield f"  2. psql -f {folder}/roles.sql postgresql://postgres@HOST/postgres, or there:"
    yield f"     runuser -u postgres -- psql < {folder}/roles.sql"
    yield f"  3. Give Redis {folder}/redis.acl as its aclfile, and `maxmemory-policy noeviction`."
    yield f"  4. set -a; . {folder}/control.env; . {folder}/owner.env; set +a"
    yield "     penstock upgrade && penstock django createsuperuser && penstock check --deploy"
    yield "  5. Start the services and put TLS in front: docs/operate/deploy.md, steps 6 and 7."


def _check(choices: Choices) -> None:
    hosts = {
        "--domain": choices.domain,
        "--database-host": choices.database_host,
        "--redis-host": choices.redis_host,
        "--private-address": choices.private_address,
        "--fleet-address": choices.engine_host,
    }
    for option, host in hosts.items():
        if not HOST.fullmatch(host) and not _is_address(host):
            raise LocalError(f"{option} is {host!r}; wanted a host name or an IP address")
    if "." not in choices.domain or _is_address(choices.domain):
        raise LocalError(f"--domain is {choices.domain!r}; wanted a domain such as example.com")
    for name in choices.gateways:
        if not NAME.fullmatch(name):
            wanted = "wanted lowercase letters, digits and dashes, at most 40"
            raise LocalError(f"--gateway is {name!r}; {wanted}")
    try:
        networks({"--trusted-proxies": choices.trusted_proxies}, "--trusted-proxies")
    except ConfigError as error:
        raise LocalError(str(error)) from error


def _control(choices: Choices, new: Secrets) -> str:
    return f"""\
# Control, worker and scheduler. docs/operate/settings.md explains each variable.

# Set these: the mail server, and the address that customers write to.
# EMAIL_URL="smtp://USER:PASSWORD@smtp.{choices.domain}:587"
# PENSTOCK_SUPPORT_EMAIL="support@{choices.domain}"
PENSTOCK_FROM_EMAIL="Penstock <noreply@{choices.domain}>"

# With payments by card, all three.
# STRIPE_SECRET_KEY=""
# STRIPE_PUBLISHABLE_KEY=""
# STRIPE_WEBHOOK_SECRET=""

# The names that customers use. TLS ends at the load balancer.
PENSTOCK_CONSOLE_URL="https://console.{choices.domain}"
PENSTOCK_GATEWAY_PUBLIC_URL="https://api.{choices.domain}/v1"
PENSTOCK_TRUSTED_PROXIES="{choices.trusted_proxies}"

# 8700 is for the load balancer, 8702 for gateways and the fleet.
PENSTOCK_CONTROL_HOST="127.0.0.1"
PENSTOCK_INTERNAL_API_HOST="{choices.private_address}"
PENSTOCK_FLEET_URL="{_private_url(choices.engine_host, 8704)}"

DATABASE_URL="{_database_url(choices, "penstock_app", new.database_app)}"
REDIS_URL="{_redis_url(choices, "default", new.redis)}"

PENSTOCK_STATIC_DIR="{DATA_DIR}/control/static"
PENSTOCK_ARCHIVE_DIR="{DATA_DIR}/control/archive"
PENSTOCK_LOG_FORMAT="json"

# Secrets. Without the pepper no API key works; without the encryption key no stored secret can be
# read. docs/operate/security.md says how to change each.
PENSTOCK_SECRET_KEY="{new.django}"
PENSTOCK_ENCRYPTION_KEY="{new.encryption}"
PENSTOCK_PLAYGROUND_SECRET="{new.playground}"
PENSTOCK_KEY_PEPPER="{new.pepper}"
PENSTOCK_INTERNAL_SECRET="{new.internal}"
"""


def _owner(choices: Choices, new: Secrets) -> str:
    return f"""\
# For `penstock upgrade` and other commands of operators, beside control.env. No service has it.
DATABASE_OWNER_URL="{_database_url(choices, "penstock_owner", new.database_owner)}"
"""


def _fleet(choices: Choices, new: Secrets) -> str:
    return f"""\
# The fleet, on the host of the engines. docs/operate/settings.md explains each variable.
PENSTOCK_INTERNAL_API_URL="{_private_url(choices.private_address, 8702)}"
PENSTOCK_FLEET_HOST="{choices.engine_host}"
PENSTOCK_FLEET_DATA_DIR="{DATA_DIR}/fleet"
PENSTOCK_LOG_FORMAT="json"
PENSTOCK_INTERNAL_SECRET="{new.internal}"
"""


def _gateway(choices: Choices, new: Secrets, name: str, number: int) -> str:
    return f"""\
# The gateway {name}. It never gets DATABASE_URL, PENSTOCK_INTERNAL_SECRET or control's other
# secrets: strangers speak to it.
PENSTOCK_INTERNAL_API_URL="{_private_url(choices.private_address, 8702)}"
PENSTOCK_FLEET_URL="{_private_url(choices.engine_host, 8704)}"
REDIS_URL="{_redis_url(choices, "gateway", new.redis_gateway)}"

# For customers, through the load balancer, and for probes and metrics.
PENSTOCK_GATEWAY_HOST="127.0.0.1"
PENSTOCK_GATEWAY_PORT="{8701 + number * PORTS_OF_A_GATEWAY}"
PENSTOCK_GATEWAY_OPERATOR_HOST="{choices.engine_host}"
PENSTOCK_GATEWAY_OPERATOR_PORT="{8703 + number * PORTS_OF_A_GATEWAY}"
PENSTOCK_TRUSTED_PROXIES="{choices.trusted_proxies}"
PENSTOCK_LAME_DUCK_SECONDS="{LAME_DUCK_SECONDS}"

# A folder of its own, in one that all gateways of this host share.
PENSTOCK_GATEWAY_DATA_DIR="{DATA_DIR}/gateways/{name}"
PENSTOCK_GATEWAYS_DATA_DIR="{DATA_DIR}/gateways"
PENSTOCK_LOG_FORMAT="json"

PENSTOCK_INTERNAL_CREDENTIAL="{issue(new.internal, ServiceIdentity("gateway", name))}"
# As in control.env.
PENSTOCK_KEY_PEPPER="{new.pepper}"
# The same for all gateways.
PENSTOCK_SALT_SECRET="{new.salt}"
"""


def _roles(new: Secrets) -> str:
    """Return the shipped script with the passwords."""
    passwords = {"owner_password": new.database_owner, "app_password": new.database_app}
    lines = [f"\\set {name} '{value}'" for name, value in passwords.items()]
    return "\n".join((*lines, "", (ROOT / "infra/postgres/roles.sql").read_text()))


def _redis_users(new: Secrets) -> str:
    """Return an ACL file of Redis; such a file takes no comments."""
    return (
        f"user default on >{new.redis} ~* &* +@all\n"
        f"user gateway on >{new.redis_gateway} {GATEWAY_RIGHTS}\n"
    )


def _database_url(choices: Choices, role: str, password: str) -> str:
    host = choices.database_host
    verified = "" if _is_here(host) else "?sslmode=verify-full&sslrootcert=system"
    return f"postgresql://{role}:{password}@{_in_url(host)}/penstock{verified}"


def _redis_url(choices: Choices, user: str, password: str) -> str:
    host = choices.redis_host
    scheme = "redis" if _is_here(host) else "rediss"
    return f"{scheme}://{user}:{password}@{_in_url(host)}:6379/0"


def _private_url(host: str, port: int) -> str:
    return f"http://{_in_url(host)}:{port}"


def _is_here(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
