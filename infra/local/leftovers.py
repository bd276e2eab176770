"""Whatever a run left behind, found by the mark in its environment, and ended."""

import os
import signal
from pathlib import Path

import psutil

from infra.local.environment import RUN_VARIABLE
from infra.local.home import Home
from infra.local.redis_server import SERVERS

TERM_SECONDS = 10.0
KILL_SECONDS = 5.0


def belongs_to(process: psutil.Process, home: Path) -> bool:
    """Tell whether a process is one of the run in `home`; False when it may not be asked."""
    try:
        return process.environ().get(RUN_VARIABLE) == str(home) or _is_redis_of(process, home)
    except (psutil.Error, OSError):
        return False


def _is_redis_of(process: psutil.Process, home: Path) -> bool:
    """Redis writes its title over its environment, and the mark with it."""
    return process.name() in SERVERS and Path(process.cwd()) == Home(home).redis_data


def find_processes(home: Path) -> list[psutil.Process]:
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


def end_processes(home: Path) -> int:
    """End what is left of the run, gently and then not; return how many there were."""
    found = find_processes(home)
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
