"""Waiting for processes to be ready, and noticing when one cannot start."""

import http.client
import socket
import time
from collections.abc import Callable

from infra.local.config import HOST, Ports
from infra.local.errors import StartFailed
from infra.local.supervisor import Supervisor

POLL_SECONDS = 0.1
RESTARTS_MAX = 3
"""A process that was restarted this often while we waited for it will not come up."""
LINES_SHOWN = 8

Check = Callable[[], bool]


def wait_for(supervisor: Supervisor, name: str, check: Check, *, seconds_max: float) -> None:
    """Wait until `check` holds. Raises StartFailed with the end of the process's log."""
    deadline = time.monotonic() + seconds_max
    pids: set[int] = set()
    look_again = 0.0
    while not check():
        if time.monotonic() >= look_again:
            look_again = time.monotonic() + 0.5
            pids.update(pid for each, pid in supervisor.pids().items() if each == name)
        if len(pids) > RESTARTS_MAX:
            raise StartFailed(explain(supervisor, name, "keeps ending"))
        if time.monotonic() > deadline:
            raise StartFailed(explain(supervisor, name, f"is not ready after {seconds_max:.0f} s"))
        time.sleep(POLL_SECONDS)


def explain(supervisor: Supervisor, name: str, what: str) -> str:
    """Return one line on the failure, and the last lines of the log that explains it."""
    log = supervisor.home.log(name)
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join((f"{name} {what}; the end of {log}:", *lines[-LINES_SHOWN:]))


def listens(port: int) -> bool:
    """Tell whether something accepts connections."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def answers(port: int, path: str, *, wanted: tuple[int, ...] = (200,)) -> bool:
    """Tell whether an HTTP GET is answered with one of the wanted statuses."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status in wanted
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def control_is_ready(ports: Ports) -> bool:
    """Tell whether control would take requests."""
    return answers(ports.control, "/readyz")


def fleet_is_ready(ports: Ports) -> bool:
    """Tell whether the fleet has heard from control."""
    return answers(ports.fleet, "/readyz")


def gateway_is_ready(ports: Ports) -> bool:
    """Tell whether every gateway would take requests."""
    return all(answers(port, "/readyz") for port in ports.gateway_operators)
