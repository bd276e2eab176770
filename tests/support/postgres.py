"""The tests' PostgreSQL: the session's own is started by whoever needs it first."""

import fcntl
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from infra.local.postgres import Postgres, prepare
from infra.local.roles import make_role
from tests.support.environment import (
    APP,
    EMBEDDED_POSTGRES,
    FOLDER_PREFIX,
    OWNER,
    SUPERUSER_URL,
    is_own_session,
)

FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")
ORPHANS_LOCK = f"penstock_tests_{os.geteuid()}.lock"
"""Two sessions that clean up the same folder would each undo the other's half."""
END_SECONDS = 30.0


def ensure_running() -> str:
    """Return the superuser's URL of a PostgreSQL that answers and knows the tests' roles.

    Starts the session's own where none was given.
    """
    if EMBEDDED_POSTGRES in os.environ:
        folder = Path(os.environ[EMBEDDED_POSTGRES])
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of pytest-xdist may come at once
            server = _server(folder)
            if not server.is_listening():
                end_orphans(folder.parent)
                options = " ".join(server.command(*FAST)[3:])
                _pg_ctl(server, "start", "-l", str(server.data / "log"), "-o", options)
    url = os.environ[SUPERUSER_URL]
    with psycopg.connect(url) as connection:
        for role in (OWNER, APP):
            make_role(connection, role)
    return url


def stop() -> None:
    """Stop this session's PostgreSQL and remove its folder; workers leave it to their parent."""
    folder = Path(os.environ.get(EMBEDDED_POSTGRES, ""))
    if is_own_session() and folder.name and folder.exists():
        _end(folder)


def end_orphans(parent: Path) -> None:
    """End the servers of sessions that were killed before they could, one session at a time."""
    with (parent / ORPHANS_LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in sorted(parent.glob(f"{FOLDER_PREFIX}*")):
            pid = folder.name.removeprefix(FOLDER_PREFIX)
            if not psutil.pid_exists(int(pid)) and folder.stat().st_uid == os.geteuid():
                _end(folder)


def _end(folder: Path) -> None:
    server = _process(folder / "data")
    if server is not None:
        server.send_signal(signal.SIGQUIT)  # its own word for: stop now, we keep nothing
        server.wait(END_SECONDS)
    shutil.rmtree(folder)


def _process(data: Path) -> psutil.Process | None:
    """Return the folder's server; a file that outlived it may name somebody else."""
    try:
        process = psutil.Process(int((data / "postmaster.pid").read_text().split("\n")[0]))
        return process if str(data) in process.cmdline() else None
    except (OSError, ValueError, psutil.Error):
        return None


def _server(folder: Path) -> Postgres:
    parts = urlsplit(os.environ[SUPERUSER_URL])
    assert parts.port
    assert parts.password
    return prepare(folder / "data", port=parts.port, password=parts.password)


def _pg_ctl(server: Postgres, *arguments: str) -> None:
    command = [str(server.binaries / "pg_ctl"), "-D", str(server.data), "-w", *arguments]
    subprocess.run(
        command, check=True, user=server.system_user, cwd=os.sep, stdout=subprocess.DEVNULL
    )
