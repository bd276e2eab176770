"""The processes of a local run: how each is started, its environment, and whatever a run left
behind, found by the mark in its environment, and ended."""

import os
import signal
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.local import postgres, redis
from infra.local.config import HOST, OWNER_VARIABLE, REPLICA_COUNT_MAX, LocalConfig
from infra.local.database_roles import APP, OWNER, DatabaseRole
from infra.local.django import scheduler_arguments
from infra.local.postgres import DATABASE, SUPERUSER
from infra.local.redis import SERVERS
from infra.local.state_dir import StateDirectory
from serving.contract.credential import ENDED_VARIABLE, ROOT_BEFORE_VARIABLE, ROOT_VARIABLE

POSTGRES, REDIS, CONTROL, FLEET, GATEWAY, WORKER, SCHEDULER = (
    *("postgres", "redis", "control", "fleet", "gateway", "worker", "scheduler"),
)
STOP_ORDER = (GATEWAY, SCHEDULER, WORKER, FLEET, CONTROL, REDIS, POSTGRES)
"""The door first; then what uses the books; the books last."""
NOT_FOR_GATEWAYS = (
    *("DATABASE_URL", "DATABASE_OWNER_URL", "EMAIL_URL"),
    *("STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET"),
    *("PENSTOCK_SECRET_KEY", "PENSTOCK_PLAYGROUND_SECRET"),
    *("PENSTOCK_ENCRYPTION_KEY", "PENSTOCK_ENCRYPTION_KEYS_PREVIOUS"),
    *(ROOT_VARIABLE, ROOT_BEFORE_VARIABLE, ENDED_VARIABLE),
)
"""Variables that are meant for others: a gateway is the one process that strangers speak to."""
DRAIN_SECONDS = 20
"""For how long `make down` lets requests go on; what is left then is told so, and pays nothing."""
LISTENING = "$(circus.sockets.{name})"
"""In a command: the number under which a process has a socket of the supervisor's."""
TERM_SECONDS = 10.0
KILL_SECONDS = 5.0
RUN_VARIABLE = "PENSTOCK_RUN_HOME"
"""Marks every process of a run, so that whatever is left over can be found and ended."""
_PASSWORDS = {
    SUPERUSER: "POSTGRES_PASSWORD",
    OWNER: "POSTGRES_OWNER_PASSWORD",
    APP: "POSTGRES_APP_PASSWORD",
}


@dataclass(frozen=True, slots=True)
class Process:
    """One process: how it starts and how it is asked to end, in `stop_seconds` at most.

    With `has_sockets` it gets those that the supervisor listens on.
    """

    name: str
    command: tuple[str, ...]
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    user: str | None = None
    has_sockets: bool = False


def postgres_process(config: LocalConfig, home: StateDirectory) -> Process:
    """Return the embedded PostgreSQL; makes its data folder. Raises PostgresError."""
    server = postgres.prepare(
        home.data / "postgres",
        port=config.ports.postgres,
        password=home.secrets()["POSTGRES_PASSWORD"],
    )
    fast_shutdown = signal.SIGINT
    return Process(POSTGRES, tuple(server.command()), fast_shutdown, 20.0, server.system_user)


def redis_process(config: LocalConfig, home: StateDirectory) -> Process:
    """Return the embedded Redis; writes its configuration. Raises LocalError."""
    configuration = home.run / "redis.conf"
    redis.write_configuration(
        configuration,
        data=home.redis_data,
        port=config.ports.redis,
        password=home.secrets()["REDIS_PASSWORD"],
    )
    return Process(REDIS, (str(redis.find_server()), str(configuration)))


def in_stop_order(names: Collection[str]) -> list[str]:
    """Return the names of processes in the order in which they end, gateways by their number."""
    kinds = {name: kind for name in names for kind in STOP_ORDER if name.startswith(kind)}
    return sorted(kinds, key=lambda name: (STOP_ORDER.index(kinds[name]), len(name), name))


def gateway_names(count: int) -> list[str]:
    """Return what so many gateways are called."""
    return [GATEWAY, *(f"{GATEWAY}-{number}" for number in range(2, count + 1))]


def gateway_processes(config: LocalConfig, home: StateDirectory) -> list[Process]:
    """Return the gateways: one socket, and to each a folder and an operator's port of its own."""
    ports = config.ports.gateway_operators
    return [
        Process(
            name,
            (
                "/usr/bin/env",
                *(f"--unset={name}" for name in NOT_FOR_GATEWAYS),
                f"PENSTOCK_GATEWAY_FD={LISTENING.format(name=GATEWAY)}",
                f"PENSTOCK_GATEWAY_DATA_DIR={home.data / name}",
                f"PENSTOCK_INTERNAL_CREDENTIAL_FILE={home.credential_file(name)}",
                f"PENSTOCK_GATEWAY_OPERATOR_PORT={port}",
                *python("serving.gateway"),
            ),
            stop_seconds=DRAIN_SECONDS + 15.0,
            has_sockets=True,
        )
        for name, port in zip(gateway_names(len(ports)), ports, strict=True)
    ]


def platform_processes(config: LocalConfig, home: StateDirectory) -> tuple[Process, ...]:
    """Return Penstock's own processes."""
    return (
        Process(CONTROL, python("control.server")),
        Process(FLEET, python("serving.fleet"), stop_seconds=30.0),
        *gateway_processes(config, home),
        Process(WORKER, python("control.worker")),
        Process(SCHEDULER, python(*scheduler_arguments())),
    )


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command of a module in this environment."""
    return (sys.executable, "-m", module, *arguments)


def build_environment(
    config: LocalConfig, home: StateDirectory, inherited: Mapping[str, str]
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
        "PENSTOCK_GATEWAY_DATA_DIR": str(home.data / "gateway"),
        "PENSTOCK_GATEWAYS_DATA_DIR": str(home.data),
        "PENSTOCK_INTERNAL_CREDENTIAL_FILE": str(home.credential_file(GATEWAY)),
        "PENSTOCK_FLEET_DATA_DIR": str(home.data / "fleet"),
        "PENSTOCK_FLEET_KEEP_REPLICAS": "0",  # what one command starts, one command ends
        "PENSTOCK_ARCHIVE_DIR": str(home.data / "archive"),
        "PENSTOCK_REPLICA_COUNT_MAX": str(REPLICA_COUNT_MAX),
        RUN_VARIABLE: str(home.path),
        "SPT_NOENV": "1",  # setproctitle would wipe the environment that the mark is read from
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), inherited.get("PATH", ""))),
    }


def owner_environment(
    config: LocalConfig, home: StateDirectory, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a command that may act as the database's owner."""
    embedded = postgres_url(config, home_role(home, OWNER))
    url = config.database_owner_url or config.database_url or embedded
    return {**environment, OWNER_VARIABLE: url}


def home_role(home: StateDirectory, name: str) -> DatabaseRole:
    """Return one of the embedded PostgreSQL's roles with its password."""
    return DatabaseRole(name, home.secrets()[_PASSWORDS[name]])


def postgres_url(config: LocalConfig, role: DatabaseRole) -> str:
    """Return the address at which a role finds the embedded PostgreSQL."""
    return f"postgresql://{role.name}:{role.password}@{HOST}:{config.ports.postgres}/{DATABASE}"


def redis_url(config: LocalConfig, home: StateDirectory) -> str:
    """Return the address of the embedded Redis."""
    return f"redis://:{home.secrets()['REDIS_PASSWORD']}@{HOST}:{config.ports.redis}/0"


def _secrets(home: StateDirectory) -> dict[str, str]:
    return {name: value for name, value in home.secrets().items() if name.startswith("PENSTOCK_")}


def _addresses(config: LocalConfig) -> dict[str, str]:
    ports = config.ports
    return {
        "PENSTOCK_CONSOLE_URL": config.console_url,
        "PENSTOCK_GATEWAY_PUBLIC_URL": config.api_base,
        "PENSTOCK_CONTROL_HOST": HOST,
        "PENSTOCK_CONTROL_PORT": str(ports.control),
        "PENSTOCK_INTERNAL_API_HOST": HOST,
        "PENSTOCK_INTERNAL_API_PORT": str(ports.control_internal),
        "PENSTOCK_INTERNAL_API_URL": f"http://{HOST}:{ports.control_internal}",
        "PENSTOCK_FLEET_HOST": HOST,
        "PENSTOCK_FLEET_PORT": str(ports.fleet),
        "PENSTOCK_FLEET_URL": f"http://{HOST}:{ports.fleet}",
        "PENSTOCK_GATEWAY_HOST": HOST,
        "PENSTOCK_GATEWAY_PORT": str(ports.gateway),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(ports.gateway_operator),
        "PENSTOCK_DRAIN_SECONDS": str(DRAIN_SECONDS),
        "PENSTOCK_REPLICA_PORT_BASE": str(ports.replicas.start),
    }


def belongs_to(process: psutil.Process, home: Path) -> bool:
    """Tell whether a process is one of the run in `home`; False when it may not be asked."""
    try:
        return process.environ().get(RUN_VARIABLE) == str(home) or _is_redis_of(process, home)
    except (psutil.Error, OSError):
        return False


def _is_redis_of(process: psutil.Process, home: Path) -> bool:
    """Redis writes its title over its environment, and the mark with it."""
    return process.name() in SERVERS and Path(process.cwd()) == StateDirectory(home).redis_data


def find_stray_processes(home: Path) -> list[psutil.Process]:
    """Return every live process of the run in `home`, and all that shares a session with one."""
    marked = {process.pid for process in psutil.process_iter() if belongs_to(process, home)}
    sessions = {session for pid in marked if (session := _session(pid)) in marked}
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid()
        and (process.pid in marked or _session(process.pid) in sessions)
        and process.status() != psutil.STATUS_ZOMBIE
    ]


def end_stray_processes(home: Path) -> int:
    """End what is left of the run, gently and then not; return how many there were."""
    found = find_stray_processes(home)
    for process in found:
        # PostgreSQL waits for its clients on SIGTERM, and does not on SIGINT.
        gentle = signal.SIGINT if process.name() == "postgres" else signal.SIGTERM
        _send(process, gentle)
    _, stubborn = psutil.wait_procs(found, timeout=TERM_SECONDS)
    for process in stubborn:
        _send(process, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=KILL_SECONDS)
    return len(found)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
