"""The processes of one local run, in the order in which they start."""

import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from infra.local import postgres, redis_server
from infra.local.config import LocalConfig
from infra.local.home import Home
from serving.contract.credential import ENDED_VARIABLE, ROOT_BEFORE_VARIABLE, ROOT_VARIABLE

POSTGRES, REDIS, CONTROL, FLEET, GATEWAY, WORKER, BEAT = (
    *("postgres", "redis", "control", "fleet", "gateway", "worker", "beat"),
)
STOP_ORDER = (GATEWAY, BEAT, WORKER, FLEET, CONTROL, REDIS, POSTGRES)
"""The door first; then what uses the books; the books last."""
NOT_FOR_GATEWAYS = (
    *("DATABASE_URL", "DATABASE_OWNER_URL", "EMAIL_URL"),
    *("STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET"),
    *("PENSTOCK_DJANGO_SECRET", "PENSTOCK_PLAYGROUND_SECRET"),
    *("PENSTOCK_VAULT_KEY", "PENSTOCK_VAULT_KEYS_OLD"),
    *(ROOT_VARIABLE, ROOT_BEFORE_VARIABLE, ENDED_VARIABLE),
)
"""What the environment has for others: a gateway is the one process that strangers speak to."""
DRAIN_SECONDS = 20
"""For how long `make down` lets requests go on; what is left then is told so, and pays nothing."""
LISTENING = "$(circus.sockets.{name})"
"""In a command: the number under which a process has a socket of the supervisor's."""


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


def postgres_process(config: LocalConfig, home: Home) -> Process:
    """Return the embedded PostgreSQL; makes its data folder. Raises PostgresError."""
    server = postgres.prepare(
        home.data / "postgres",
        port=config.ports.postgres,
        password=home.secrets()["POSTGRES_PASSWORD"],
    )
    fast_shutdown = signal.SIGINT
    return Process(POSTGRES, tuple(server.command()), fast_shutdown, 20.0, server.system_user)


def redis_process(config: LocalConfig, home: Home) -> Process:
    """Return the embedded Redis; writes its configuration. Raises LocalError."""
    configuration = home.run / "redis.conf"
    redis_server.write_configuration(
        configuration,
        data=home.redis_data,
        port=config.ports.redis,
        password=home.secrets()["REDIS_PASSWORD"],
    )
    return Process(REDIS, (str(redis_server.find_server()), str(configuration)))


def in_stop_order(names: Collection[str]) -> list[str]:
    """Return the names of processes in the order in which they end, gateways by their number."""
    kinds = {name: kind for name in names for kind in STOP_ORDER if name.startswith(kind)}
    return sorted(kinds, key=lambda name: (STOP_ORDER.index(kinds[name]), len(name), name))


def gateway_names(count: int) -> list[str]:
    """Return what so many gateways are called."""
    return [GATEWAY, *(f"{GATEWAY}-{number}" for number in range(2, count + 1))]


def gateway_processes(config: LocalConfig, home: Home) -> list[Process]:
    """Return the gateways: one socket, and to each a folder and an operator's port of its own."""
    ports = config.ports.gateway_operators
    return [
        Process(
            name,
            (
                "/usr/bin/env",
                *(f"--unset={name}" for name in NOT_FOR_GATEWAYS),
                f"PENSTOCK_GATEWAY_FD={LISTENING.format(name=GATEWAY)}",
                f"PENSTOCK_GATEWAY_DIR={home.data / name}",
                f"PENSTOCK_INTERNAL_CREDENTIAL_FILE={home.credential_file(name)}",
                f"PENSTOCK_GATEWAY_OPERATOR_PORT={port}",
                *python("serving.gateway"),
            ),
            stop_seconds=DRAIN_SECONDS + 15.0,
            has_sockets=True,
        )
        for name, port in zip(gateway_names(len(ports)), ports, strict=True)
    ]


def platform_processes(config: LocalConfig, home: Home) -> tuple[Process, ...]:
    """Return Penstock's own processes."""
    return (
        Process(CONTROL, python("control.server")),
        Process(FLEET, python("serving.fleet"), stop_seconds=30.0),
        *gateway_processes(config, home),
        Process(WORKER, python("control.worker")),
        Process(BEAT, beat_command()),
    )


def python(module: str) -> tuple[str, ...]:
    """Return the command of a module in this environment."""
    return (sys.executable, "-m", module)


def beat_command(schedule: Path | None = None) -> tuple[str, ...]:
    """Return Celery's beat; without a file it forgets where it was: every task may run twice."""
    kept = ("--scheduler", "celery.beat:Scheduler")
    if schedule is not None:
        kept = ("--schedule", str(schedule))
    return (
        *(*python("celery"), "--app", "control", "beat", "--loglevel", "warning"),
        *(*kept, "--pidfile", ""),
    )
