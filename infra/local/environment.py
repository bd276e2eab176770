"""The environment that every process of one local run gets."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.local.config import HOST, REPLICA_COUNT_MAX, LocalConfig
from infra.local.home import Home
from infra.local.postgres import DATABASE, SUPERUSER
from infra.local.processes import DRAIN_SECONDS, GATEWAY
from infra.local.roles import APP, OWNER, Role

RUN_VARIABLE = "PENSTOCK_RUN_HOME"
"""Marks every process of a run, so that whatever is left over can be found and ended."""
OWNER_VARIABLE = "DATABASE_OWNER_URL"
"""The database as its owner: for migrations and archives, in no service's environment."""
_PASSWORDS = {
    SUPERUSER: "POSTGRES_PASSWORD",
    OWNER: "POSTGRES_OWNER_PASSWORD",
    APP: "POSTGRES_APP_PASSWORD",
}


def build_environment(
    config: LocalConfig, home: Home, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return `inherited` with all that the processes of this run need on top.

    None of them gets the database owner's address, even where it was inherited.
    """
    return {
        **{name: value for name, value in inherited.items() if name != OWNER_VARIABLE},
        **_secrets(home),
        **_addresses(config),
        "DATABASE_URL": config.database_url or postgres_url(config, home_role(home, APP)),
        "REDIS_URL": config.redis_url or redis_url(config, home),
        "DJANGO_SETTINGS_MODULE": "control.settings",
        "PENSTOCK_GATEWAY_DIR": str(home.data / "gateway"),
        "PENSTOCK_GATEWAYS_DIR": str(home.data),
        "PENSTOCK_INTERNAL_CREDENTIAL_FILE": str(home.credential_file(GATEWAY)),
        "PENSTOCK_FLEET_DIR": str(home.data / "fleet"),
        "PENSTOCK_FLEET_KEEP_REPLICAS": "0",  # what one command starts, one command ends
        "PENSTOCK_ARCHIVE_DIR": str(home.data / "archive"),
        "PENSTOCK_REPLICA_COUNT_MAX": str(REPLICA_COUNT_MAX),
        RUN_VARIABLE: str(home.path),
        "SPT_NOENV": "1",  # setproctitle would wipe the environment that the mark is read from
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), inherited.get("PATH", ""))),
    }


def owner_environment(
    config: LocalConfig, home: Home, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a command that may act as the database's owner."""
    embedded = postgres_url(config, home_role(home, OWNER))
    url = config.database_owner_url or config.database_url or embedded
    return {**environment, OWNER_VARIABLE: url}


def home_role(home: Home, name: str) -> Role:
    """Return one of the embedded PostgreSQL's roles with its password."""
    return Role(name, home.secrets()[_PASSWORDS[name]])


def postgres_url(config: LocalConfig, role: Role) -> str:
    """Return the address at which a role finds the embedded PostgreSQL."""
    return f"postgresql://{role.name}:{role.password}@{HOST}:{config.ports.postgres}/{DATABASE}"


def redis_url(config: LocalConfig, home: Home) -> str:
    """Return the address of the embedded Redis."""
    return f"redis://:{home.secrets()['REDIS_PASSWORD']}@{HOST}:{config.ports.redis}/0"


def _secrets(home: Home) -> dict[str, str]:
    return {name: value for name, value in home.secrets().items() if name.startswith("PENSTOCK_")}


def _addresses(config: LocalConfig) -> dict[str, str]:
    ports = config.ports
    return {
        "PENSTOCK_CONSOLE_URL": config.console_url,
        "PENSTOCK_API_BASE": config.api_base,
        "PENSTOCK_CONTROL_HOST": HOST,
        "PENSTOCK_CONTROL_PORT": str(ports.control),
        "PENSTOCK_CONTROL_INTERNAL_HOST": HOST,
        "PENSTOCK_CONTROL_INTERNAL_PORT": str(ports.control_internal),
        "PENSTOCK_CONTROL_URL": f"http://{HOST}:{ports.control_internal}",
        "PENSTOCK_FLEET_HOST": HOST,
        "PENSTOCK_FLEET_PORT": str(ports.fleet),
        "PENSTOCK_FLEET_URL": f"http://{HOST}:{ports.fleet}",
        "PENSTOCK_GATEWAY_HOST": HOST,
        "PENSTOCK_GATEWAY_PORT": str(ports.gateway),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(ports.gateway_operator),
        "PENSTOCK_DRAIN_SECONDS": str(DRAIN_SECONDS),
        "PENSTOCK_REPLICA_PORT_BASE": str(ports.replicas.start),
    }
