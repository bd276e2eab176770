"""The session's own PostgreSQL: started by whoever needs it first, stopped by the session."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from infra.local.postgres import Postgres, prepare
from tests.support.environment import (
    EMBEDDED_POSTGRES,
    FOLDER_PREFIX,
    is_own_session,
)

FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


def ensure_running() -> str:
    """Return the URL of a PostgreSQL that answers; start the session's own if none was given."""
    if EMBEDDED_POSTGRES in os.environ:
        folder = Path(os.environ[EMBEDDED_POSTGRES])
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of pytest-xdist may come at once
            server = _server(folder)
            if not server.is_listening():
                _end_orphans(folder.parent)
                options = " ".join(server.command(*FAST)[3:])
                _pg_ctl(server, "start", "-l", str(server.data / "log"), "-o", options)
    return os.environ["DATABASE_URL"]


def stop() -> None:
    """Stop this session's PostgreSQL and remove its folder; workers leave it to their parent."""
    folder = Path(os.environ.get(EMBEDDED_POSTGRES, ""))
    if is_own_session() and folder.name and folder.exists():
        _end(folder)


def _end_orphans(parent: Path) -> None:
    """End the servers of sessions that were killed before they could."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX)
        if not psutil.pid_exists(int(pid)) and folder.stat().st_uid == os.geteuid():
            _end(folder)


def _end(folder: Path) -> None:
    server = _server(folder)
    if (server.data / "postmaster.pid").exists():
        _pg_ctl(server, "stop", "-m", "immediate")
    shutil.rmtree(folder)


def _server(folder: Path) -> Postgres:
    parts = urlsplit(os.environ["DATABASE_URL"])
    assert parts.port
    assert parts.password
    return prepare(folder / "data", port=parts.port, password=parts.password)


def _pg_ctl(server: Postgres, *arguments: str) -> None:
    command = [str(server.binaries / "pg_ctl"), "-D", str(server.data), "-w", *arguments]
    subprocess.run(
        command, check=True, user=server.system_user, cwd=os.sep, stdout=subprocess.DEVNULL
    )
