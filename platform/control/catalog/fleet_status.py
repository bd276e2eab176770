"""The running replicas as the fleets report them, for display."""

import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain

from django.conf import settings
from django.utils.translation import gettext

from serving.contract.codec import ContractError, decode
from serving.contract.feed import FeedPage
from serving.contract.fleet import generation_of
from serving.contract.replica import ReplicaRecord

TIMEOUT_SECONDS = 1.0
KEPT_SECONDS = 1.0
FAILURE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The existing replicas; `is_down` if no fleet responded, so that nothing is known, else
    `silent` are the ids of the fleets that did not. `generations` are those of the processes that
    responded, by fleet."""

    replicas: tuple[ReplicaRecord, ...] = ()
    is_down: bool = False
    silent: frozenset[str] = frozenset()
    generations: Mapping[str, int] = field(default_factory=dict)

    def of(self, deployment_id: str) -> list[ReplicaRecord]:
        return [each for each in self.replicas if each.deployment_id == deployment_id]

    def is_known(self, fleet_id: str) -> bool:
        """Return whether a fleet responded: not one that `PENSTOCK_FLEET_URL` does not name."""
        was_asked = fleet_id in settings.CONFIG.fleet_urls
        return was_asked and not self.is_down and fleet_id not in self.silent

    def summary(self, fleet_id: str, *deployment_ids: str) -> str:
        """Return a text such as `1 ready, 2 loading` about some deployments of a fleet."""
        if not self.is_known(fleet_id):
            return gettext("unknown: the fleet does not respond")
        states = Counter(each.state for id_ in deployment_ids for each in self.of(id_))
        return ", ".join(f"{count} {state}" for state, count in states.items()) or gettext("none")


class StatusCache:
    """The last status, and the monotonic time until which it is returned."""

    def __init__(self) -> None:
        self.status, self.expires_at = FleetStatus(is_down=True), 0.0

    def get(self) -> FleetStatus:
        """Return the status; request it if the last one has expired."""
        if time.monotonic() >= self.expires_at:
            self.status = _poll()
            is_whole = not (self.status.is_down or self.status.silent)
            kept_seconds = KEPT_SECONDS if is_whole else FAILURE_SECONDS
            self.expires_at = time.monotonic() + kept_seconds
        return self.status

    def clear(self) -> None:
        """Let the next call request the status."""
        self.expires_at = 0.0


cache = StatusCache()


def fleet_status() -> FleetStatus:
    """Return the fleets' status, requested at most once a second. After a request that failed,
    which may take TIMEOUT_SECONDS, the next one is made FAILURE_SECONDS later."""
    return cache.get()


def _poll() -> FleetStatus:
    """Ask all fleets at once."""
    urls = settings.CONFIG.fleet_urls
    with ThreadPoolExecutor(len(urls)) as threads:
        found = dict(zip(urls, threads.map(_read, urls.values()), strict=True))
    told = {fleet_id: each for fleet_id, each in found.items() if each is not None}
    return FleetStatus(
        tuple(chain.from_iterable(replicas for _, replicas in told.values())),
        is_down=not told,
        silent=frozenset(found.keys() - told.keys()),
        generations={fleet_id: generation for fleet_id, (generation, _) in told.items()},
    )


def _read(url: str) -> tuple[int, list[ReplicaRecord]] | None:
    """Return the generation of a fleet's process and its replicas, None if it does not respond."""
    try:
        page = decode(ask(f"{url}/replicas?after=0"), FeedPage)
        replicas = [decode(each.record, ReplicaRecord) for each in page.changes]
        return generation_of(page.lineage), replicas
    except (OSError, ContractError):
        return None


def ask(url: str) -> bytes:
    """Return what a fleet answers. Raises OSError if it does not, or refuses."""
    request = urllib.request.Request(  # noqa: S310 - the operator's own http address
        url, headers={"Authorization": f"Bearer {settings.CONFIG.credential}"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
        return bytes(response.read())
