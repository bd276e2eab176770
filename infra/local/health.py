"""Whether processes and engine replicas are ready."""

import http.client
import re
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime

from infra.local.config import HOST, Ports, StartFailed
from infra.local.progress import ProgressStep
from infra.local.supervisor import Supervisor
from serving.contract.codec import ContractError, decode
from serving.contract.feed import FeedPage
from serving.contract.replica import ReplicaRecord

POLL_SECONDS = 0.1
RESTARTS_MAX = 3
"""A process that was restarted this often while we waited for it will not come up."""
LINES_SHOWN = 8

Check = Callable[[], bool]
READY_SECONDS_MAX = 600.0
FAILURES_MAX = 2
REPLICA_POLL_SECONDS = 0.3
_ELAPSED = re.compile(r"\s*\(\d+ s\)$")  # the step's own clock is shown instead


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


def is_listening(port: int) -> bool:
    """Tell whether something accepts connections."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def responds(port: int, path: str, *, wanted: tuple[int, ...] = (200,)) -> bool:
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
    return responds(ports.control, "/readyz")


def fleet_is_ready(ports: Ports) -> bool:
    """Tell whether the fleet has heard from control."""
    return responds(ports.fleet, "/readyz")


def gateway_is_ready(ports: Ports) -> bool:
    """Tell whether every gateway would take requests."""
    return all(responds(port, "/readyz") for port in ports.gateway_operators)


def list_replicas(port: int, credential: str) -> list[ReplicaRecord] | None:
    """Return the replicas that the fleet knows; None when it does not answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        headers = {"authorization": f"Bearer {credential}"}
        connection.request("GET", "/replicas?after=0", headers=headers)
        page = decode(connection.getresponse().read(), FeedPage)
        changes = [change for change in page.changes if not change.is_deletion]
        return [decode(change.record, ReplicaRecord) for change in changes]
    except (OSError, http.client.HTTPException, ContractError):
        return None
    finally:
        connection.close()


def wait_for_replica(
    port: int, credential: str, current: ProgressStep, *, deployment_id: str | None
) -> None:
    """Wait until a replica of the deployment is ready, or will be on demand, telling how far it
    is; of any deployment where None is given.

    Raises StartFailed.
    """
    started = datetime.now(UTC)
    while current.seconds < READY_SECONDS_MAX:
        known = list_replicas(port, credential) or []
        replicas = [each for each in known if deployment_id in (None, each.deployment_id)]
        if any(replica.state in ("ready", "asleep") for replica in replicas):
            return
        _give_up_on_failures([each for each in replicas if each.started_at >= started])
        for replica in replicas:
            if replica.state not in ("stopped", "failed", "draining"):
                current.say(_ELAPSED.sub("", replica.progress) or replica.state)
        time.sleep(REPLICA_POLL_SECONDS)
    raise StartFailed(f"no replica is ready after {READY_SECONDS_MAX:.0f} s")


def _give_up_on_failures(replicas: list[ReplicaRecord]) -> None:
    reasons = [replica.reason for replica in replicas if replica.state == "failed"]
    if len(reasons) >= FAILURES_MAX:
        raise StartFailed(f"the engine failed {len(reasons)} times: {reasons[-1]}")
