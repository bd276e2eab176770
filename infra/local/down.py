"""End what `up` started, in order; data stay."""

import psutil

from infra.local.config import LocalError
from infra.local.processes import end_stray_processes, in_stop_order
from infra.local.progress import step
from infra.local.state_dir import StateDirectory
from infra.local.supervisor import Supervisor

QUIT_SECONDS_MAX = 20.0


def down(home: StateDirectory, *, quietly: bool = False) -> bool:
    """Stop the processes one by one, then the supervisor; return whether anything ran."""
    supervisor = Supervisor(home)
    pid = supervisor.pid()
    if pid is not None:
        running = supervisor.pids()
        for name in in_stop_order(running):
            _stop(supervisor, name, quietly=quietly)
        _quit(supervisor, pid)
    return end_stray_processes(home.path) > 0 or pid is not None


def _stop(supervisor: Supervisor, name: str, *, quietly: bool) -> None:
    if quietly:
        supervisor.stop_process(name)
        return
    with step(name, "ended"):
        supervisor.stop_process(name)


def _quit(supervisor: Supervisor, pid: int) -> None:
    """Ask the supervisor to end; what does not is found and ended by the mark it bears."""
    try:
        process = psutil.Process(pid)
        supervisor.quit()
        process.wait(QUIT_SECONDS_MAX)
    except (LocalError, psutil.NoSuchProcess, psutil.TimeoutExpired):
        return
    supervisor.pidfile.unlink(missing_ok=True)
