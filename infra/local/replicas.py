"""The engine's loading, as the fleet's replica feed tells it."""

import http.client
import re
import time
from datetime import UTC, datetime

from infra.local.config import HOST
from infra.local.errors import StartFailed
from infra.local.progress import Step
from serving.contract.codec import ContractError, decode
from serving.contract.feed import Page
from serving.contract.replica import ReplicaRecord

READY_SECONDS_MAX = 600.0
FAILURES_MAX = 2
POLL_SECONDS = 0.3
_ELAPSED = re.compile(r"\s*\(\d+ s\)$")  # the step's own clock is shown instead


def read_replicas(port: int, credential: str) -> list[ReplicaRecord] | None:
    """Return the replicas that the fleet knows; None when it does not answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        headers = {"authorization": f"Bearer {credential}"}
        connection.request("GET", "/replicas?after=0", headers=headers)
        page = decode(connection.getresponse().read(), Page)
        changes = [change for change in page.changes if not change.is_deletion]
        return [decode(change.record, ReplicaRecord) for change in changes]
    except (OSError, http.client.HTTPException, ContractError):
        return None
    finally:
        connection.close()


def wait_for_replica(
    port: int, credential: str, current: Step, *, deployment_id: str | None
) -> None:
    """Wait until a replica of the deployment is ready, or will be on demand, telling how far it
    is; of any deployment where None is given.

    Raises StartFailed.
    """
    started = datetime.now(UTC)
    while current.seconds < READY_SECONDS_MAX:
        known = read_replicas(port, credential) or []
        replicas = [each for each in known if deployment_id in (None, each.deployment_id)]
        if any(replica.state in ("ready", "asleep") for replica in replicas):
            return
        _give_up_on_failures([each for each in replicas if each.started_at >= started])
        for replica in replicas:
            if replica.state not in ("stopped", "failed", "draining"):
                current.say(_ELAPSED.sub("", replica.progress) or replica.state)
        time.sleep(POLL_SECONDS)
    raise StartFailed(f"no replica is ready after {READY_SECONDS_MAX:.0f} s")


def _give_up_on_failures(replicas: list[ReplicaRecord]) -> None:
    reasons = [replica.reason for replica in replicas if replica.state == "failed"]
    if len(reasons) >= FAILURES_MAX:
        raise StartFailed(f"the engine failed {len(reasons)} times: {reasons[-1]}")
