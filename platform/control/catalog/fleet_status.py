"""The running replicas as the fleet reports them, for display."""

import time
import urllib.request
from collections import Counter
from dataclasses import dataclass

from django.conf import settings
from django.utils.translation import gettext

from serving.contract.codec import ContractError, decode
from serving.contract.feed import Page
from serving.contract.replica import ReplicaRecord

TIMEOUT_SECONDS = 1.0
FRESH_SECONDS = 1.0
DOWN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The existing replicas; `is_down` if the fleet did not respond, so that nothing is known."""

    replicas: tuple[ReplicaRecord, ...] = ()
    is_down: bool = False

    def of(self, deployment_id: str) -> list[ReplicaRecord]:
        """Return the replicas of a deployment."""
        return [each for each in self.replicas if each.deployment_id == deployment_id]

    def summary(self, deployment_id: str) -> str:
        """Return a text such as `1 ready, 2 loading`."""
        if self.is_down:
            return gettext("unknown: the fleet does not respond")
        states = Counter(each.state for each in self.of(deployment_id))
        return ", ".join(f"{count} {state}" for state, count in states.items()) or gettext("none")


@dataclass(slots=True)
class _Latest:
    """The latest status and how long it is used, as `time.monotonic` tells."""

    status: FleetStatus
    until: float = 0.0


_latest = _Latest(FleetStatus(is_down=True))


def fleet_status() -> FleetStatus:
    """Return the fleet's current status, requested once a second at most, or every few seconds
    while it does not respond: each attempt may take TIMEOUT_SECONDS."""
    if time.monotonic() >= _latest.until:
        _latest.status = _poll()
        seconds = DOWN_SECONDS if _latest.status.is_down else FRESH_SECONDS
        _latest.until = time.monotonic() + seconds
    return _latest.status


def _poll() -> FleetStatus:
    request = urllib.request.Request(  # noqa: S310 - the operator's own http address
        f"{settings.CONFIG.fleet_url}/replicas?after=0",
        headers={"Authorization": f"Bearer {settings.CONFIG.credential}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            page = decode(response.read(), Page)
            return FleetStatus(tuple(decode(each.record, ReplicaRecord) for each in page.changes))
    except (OSError, ContractError):
        return FleetStatus(is_down=True)
