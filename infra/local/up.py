"""Start the whole platform, step by step, with progress."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import typer

from control.db.connection import connect
from infra.local import database_roles, health, preflight, processes
from infra.local.config import ONE_ROLE, LocalConfig, LocalError
from infra.local.django import run_django
from infra.local.down import down
from infra.local.health import wait_for_replica
from infra.local.postgres import SUPERUSER, PostgresError
from infra.local.processes import (
    build_environment,
    end_stray_processes,
    home_role,
    owner_environment,
    postgres_url,
)
from infra.local.progress import step
from infra.local.seed import Seeded, seed
from infra.local.state_dir import StateDirectory
from infra.local.supervisor import Supervisor

READY_SECONDS_MAX = 90.0
NO_ROOM = (
    "No room for a second engine (10 GB of memory free, no GPU): the model for embeddings is"
    " offered and not started. Raise its deployment's replicas in the admin to start it anyway."
)


def up(config: LocalConfig) -> Seeded:
    """Start everything and wait until it answers; on failure, end what was started.

    Raises LocalError.
    """
    home = StateDirectory(config.home)
    supervisor = Supervisor(home)
    if supervisor.pid() is not None:
        raise LocalError(f"already running in {home.path}; `make down` ends it")
    home.make()
    with _starting_alone(home):
        end_stray_processes(home.path)  # of a run whose supervisor was killed
        preflight.check_machine(config)
        home.remember_port_base(config.ports.base)
        for name in processes.gateway_names(config.ports.gateway_count):
            home.write_credential(name)
        typer.echo(f"Starting Penstock in {home.path}, ports from {config.ports.base}")
        if config.has_one_role:
            typer.secho(ONE_ROLE, fg=typer.colors.YELLOW)
        try:
            return _start(config, home, supervisor)
        except BaseException:
            down(home, quietly=True)
            raise


def _start(config: LocalConfig, home: StateDirectory, supervisor: Supervisor) -> Seeded:
    environment = build_environment(config, home, os.environ)
    embedder_runs = preflight.fits_embedder(config)
    if not embedder_runs:
        typer.echo(NO_ROOM)
    with step("supervisor"):
        supervisor.start(
            environment,
            port=config.ports.gateway,
            gateways=processes.gateway_processes(config, home),
        )
    if config.database_url is None:
        _start_postgres(config, home, supervisor, environment)
    if config.redis_url is None:
        _start_redis(config, home, supervisor, environment)
    with step("database", "prepared"):
        run_django(owner_environment(config, home, environment), "upgrade")
    for process in processes.platform_processes(config, home):
        supervisor.add(process, environment)
    with step("seed", "done"):
        seeded = seed(config, home, environment, embedder_runs=embedder_runs)
    _await_platform(config, home, supervisor, seeded.deployment_id)
    return seeded


def _start_postgres(
    config: LocalConfig, home: StateDirectory, supervisor: Supervisor, environment: dict[str, str]
) -> None:
    with step("PostgreSQL"):
        try:
            process = processes.postgres_process(config, home)
        except PostgresError as error:
            raise LocalError(str(error)) from error
        supervisor.add(process, environment)
        url = postgres_url(config, home_role(home, SUPERUSER))
        # A port that listens may still be recovering from a kill.
        _await(supervisor, process.name, lambda: preflight.database_error(url) is None)
        make_roles(url, home)


def make_roles(superuser_url: str, home: StateDirectory) -> None:
    """Make the two roles of an embedded PostgreSQL; all that it holds becomes the owner's."""
    with connect(superuser_url) as connection:
        for name in (database_roles.OWNER, database_roles.APP):
            database_roles.make_role(connection, home_role(home, name))
        database_roles.transfer_ownership(connection, owner=database_roles.OWNER)


def _start_redis(
    config: LocalConfig, home: StateDirectory, supervisor: Supervisor, environment: dict[str, str]
) -> None:
    with step("Redis"):
        process = processes.redis_process(config, home)
        supervisor.add(process, environment)
        _await(supervisor, process.name, partial(health.is_listening, config.ports.redis))


def _await_platform(
    config: LocalConfig, home: StateDirectory, supervisor: Supervisor, deployment_id: str | None
) -> None:
    ports = config.ports
    with step("control"):
        _await(supervisor, processes.CONTROL, partial(health.control_is_ready, ports))
    with step("fleet"):
        _await(supervisor, processes.FLEET, partial(health.fleet_is_ready, ports))
    with step("engine") as current:
        credential = home.credential("control", "up")
        wait_for_replica(ports.fleet, credential, current, deployment_id=deployment_id)
    names = processes.gateway_names(ports.gateway_count)
    for name, port in zip(names, ports.gateway_operators, strict=True):
        with step(name):
            _await(supervisor, name, partial(health.responds, port, "/readyz"))


def _await(supervisor: Supervisor, name: str, check: Callable[[], bool]) -> None:
    health.wait_for(supervisor, name, check, seconds_max=READY_SECONDS_MAX)


@contextmanager
def _starting_alone(home: StateDirectory) -> Iterator[None]:
    """Hold the home folder against another start. Raises LocalError when one is under way."""
    with (home.path / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LocalError(f"another start is under way in {home.path}") from error
        yield
