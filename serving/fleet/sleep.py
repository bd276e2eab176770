"""Which deployments sleep: whoever has had nothing to do for long enough, until somebody waits.

An operator's stop is not sleep, and nothing here undoes it: one that is stopped `may_sleep` no
more.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from serving.engine.adapter import EngineAdapter


class Sleep:
    """`now` is monotonic seconds throughout. A fleet that starts knows who was `asleep`; of all
    others it counts the seconds anew."""

    def __init__(self, asleep: Iterable[str] = ()) -> None:
        self.asleep = set(asleep)
        self._used_at: dict[str, float] = {}
        self._busy_seconds: dict[str, float] = {}

    def note_demand(self, deployment: DeploymentRecord, now: float) -> bool:
        """Somebody waits or is served; tell whether that wakes it."""
        is_woken = deployment.may_sleep and deployment.deployment_id in self.asleep
        self.asleep.discard(deployment.deployment_id)
        self.note_use(deployment, now)
        return is_woken

    def note_use(self, deployment: DeploymentRecord, now: float) -> None:
        """There is a reason to stay awake; none to wake."""
        if deployment.may_sleep and deployment.deployment_id not in self.asleep:
            self._used_at[deployment.deployment_id] = now

    def note_engines(self, deployment: DeploymentRecord, busy_seconds: float, now: float) -> None:
        """Take in how long its engines were busy in all: another figure than before is use that no
        gateway may have told of, as of requests shorter than the time between two reports."""
        if self._busy_seconds.get(deployment.deployment_id) != busy_seconds:
            self.note_use(deployment, now)
            if deployment.may_sleep:
                self._busy_seconds[deployment.deployment_id] = busy_seconds

    def review(self, deployment: DeploymentRecord, now: float) -> bool:
        """Have it sleep if it is time to; tell whether it fell asleep just now."""
        id_ = deployment.deployment_id
        if not deployment.may_sleep or id_ in self.asleep:
            return False
        if now - self._used_at.setdefault(id_, now) < deployment.sleep_after_seconds:
            return False
        self.asleep.add(id_)
        return True

    def forget_others(self, deployments: Mapping[str, DeploymentRecord]) -> None:
        """Remember only deployments that are there and may sleep: one that is stopped, or may sleep
        no more, does not begin asleep when it is started."""
        may = {id_ for id_, deployment in deployments.items() if deployment.may_sleep}
        self.asleep &= may
        for known in (self._used_at, self._busy_seconds):
            for id_ in known.keys() - may:
                del known[id_]


def asleep_record(
    deployment: DeploymentRecord, engine: EngineAdapter, load_seconds: float | None, since: datetime
) -> ReplicaRecord:
    """Return what the feed tells of a deployment that sleeps, under its own id: what it will be
    able to do, and how long it takes to be ready."""
    return ReplicaRecord(
        replica_id=deployment.deployment_id,
        deployment_id=deployment.deployment_id,
        url="http://127.0.0.1:0",
        state="asleep",
        slots=deployment.slots,
        started_at=since,
        engine=engine.name,
        capabilities=engine.capabilities(deployment),
        load_seconds=load_seconds,
    )
