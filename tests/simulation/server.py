"""The simulator's PostgreSQL: one of its own, in a folder that goes with it and without a flush to
disk, since nothing in it outlives the command; or one that is there, with roles of its own."""

import hmac
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from control.db.connection import connect
from infra.local.config import HOST, OWNER_VARIABLE, StartFailed, read_config
from infra.local.database_roles import DatabaseRole, make_role
from infra.local.postgres import DATABASE, SUPERUSER, prepare
from infra.local.processes import build_environment
from infra.local.state_dir import StateDirectory

UNSAFE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
SERVER_VARIABLE = "PENSTOCK_SIMULATION_SERVER"
"""A PostgreSQL as its superuser, for the simulator and for nobody else."""
STARTS_WITHIN_SECONDS = 30
ROLES = ("penstock_simulation_owner", "penstock_simulation_app")
"""Roles of their own: a server given from outside may hold a real platform's too."""


@contextmanager
def prepared_server(url: str | None) -> Iterator[str]:
    """Yield the superuser's address of a server, the one given or one started here, after this
    process's environment was set for two roles in it.

    Raises StartFailed.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-simulation-") as folder:
        home = StateDirectory(Path(folder))
        home.path.chmod(0o711)  # PostgreSQL may run as another user, who passes through
        with running(home) if url is None else nullcontext(url) as found:
            os.environ.update(_environment(home, found, *_make_roles(found)))
            yield found


def _make_roles(url: str) -> tuple[DatabaseRole, DatabaseRole]:
    """Make the owner and the application in a server."""
    owner, app = (DatabaseRole(name, _password(url, name)) for name in ROLES)
    with connect(url) as connection:
        for role in (owner, app):
            make_role(connection, role)
    return owner, app


def _password(url: str, name: str) -> str:
    """Return a role's password, the same for all simulations of a server: roles are the server's,
    and one that came later would lock out those at work."""
    key = (urlsplit(url).password or "").encode()
    return hmac.new(key, name.encode(), "sha256").hexdigest()


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
            server.command(*UNSAFE),
            user=server.system_user,
            cwd=os.sep,
            stdout=log,
            stderr=log,
            process_group=0,  # Ctrl-C is for the simulator, which still drops its database
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
        process.send_signal(signal.SIGINT)  # without waiting for sessions to end
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
