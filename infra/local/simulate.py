"""`penstock simulate-books` on a PostgreSQL of its own: in memory's place, a folder that goes with
it, and no flush to disk, since nothing in it outlives the command."""

import hmac
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from control.db.connection import connect
from infra.local.config import HOST, OWNER_VARIABLE, StartFailed, read_config
from infra.local.database_roles import DatabaseRole, make_role
from infra.local.django import django_command
from infra.local.postgres import DATABASE, SUPERUSER, prepare
from infra.local.processes import build_environment
from infra.local.state_dir import StateDirectory

UNSAFE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
SERVER_VARIABLE = "PENSTOCK_SIMULATION_SERVER"
"""A PostgreSQL as its superuser, for the simulator and for nobody else."""
STARTS_WITHIN_SECONDS = 30
ROLES = ("penstock_simulation_owner", "penstock_simulation_app")
"""Roles of their own: a server given from outside may hold a real platform's too."""


def simulate_books(arguments: Sequence[str], *, server_url: str | None) -> int:
    """Run seeds against the books on the server given, or on one started for it.

    Returns the exit code of `penstock django simulate_books`. Raises StartFailed.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-simulation-") as folder:
        home = StateDirectory(Path(folder))
        home.path.chmod(0o711)  # PostgreSQL may run as another user, who passes through
        if server_url is not None:
            return _simulate(home, server_url, arguments)
        with running(home) as url:
            return _simulate(home, url, arguments)


def _simulate(home: StateDirectory, url: str, arguments: Sequence[str]) -> int:
    owner, app = (DatabaseRole(name, _password(url, name)) for name in ROLES)
    with connect(url) as connection:
        for role in (owner, app):
            make_role(connection, role)
    # By the environment: everybody on a machine reads what a process was called with.
    environment = {**_environment(home, url, owner, app), SERVER_VARIABLE: url}
    return _run([*django_command("simulate_books"), *arguments], environment)


def _password(url: str, name: str) -> str:
    """Return a role's password, the same for all simulations of a server: roles are the server's,
    and one that came later would lock out those at work."""
    key = (urlsplit(url).password or "").encode()
    return hmac.new(key, name.encode(), "sha256").hexdigest()


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a child to its end; if this process is told to end, so is the child, and waited for."""
    child = subprocess.Popen(command, env=environment)
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()  # it drops its database
        raise


def _environment(
    home: StateDirectory, url: str, owner: DatabaseRole, app: DatabaseRole
) -> Mapping[str, str]:
    """Boot the control plane with secrets that nobody else has, and reach nothing real."""
    given = {**os.environ, "PENSTOCK_HOME": str(home.path)}
    home.make()
    local = build_environment(read_config(given), home, given)
    place = url.rpartition("@")[2]
    addresses = {
        "DATABASE_URL": f"postgresql://{app.name}:{app.password}@{place}",
        OWNER_VARIABLE: f"postgresql://{owner.name}:{owner.password}@{place}",
    }
    return {**local, **addresses}


@contextmanager
def running(home: StateDirectory) -> Iterator[str]:
    """Start a PostgreSQL in a home folder; end it in the end. Raises StartFailed."""
    password = secrets.token_hex(16)
    server = prepare(home.path / "postgres", port=_free_port(), password=password)
    with (home.path / "postgres.log").open("w") as log:
        process = subprocess.Popen(
            server.command(*UNSAFE), user=server.system_user, cwd=os.sep, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + STARTS_WITHIN_SECONDS
        url = f"postgresql://{SUPERUSER}:{password}@{HOST}:{server.port}/{DATABASE}"
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartFailed("PostgreSQL did not start")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    """Whether the server lets somebody in: it listens a moment earlier."""
    try:
        connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
