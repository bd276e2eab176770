"""What a deployment wants running, and which replicas are that."""

from collections import Counter

from serving.contract.records import DeploymentRecord
from serving.fleet.replica import Replica


def wanted_places(deployment: DeploymentRecord) -> Counter[str]:
    """Return how many replicas are wanted at each place: an external URL, or here ("").

    For now as many as `replicas_min`; 0 stops the deployment.
    """
    if deployment.replicas_min == 0:
        return Counter()
    if deployment.engine == "external":
        return Counter(set(deployment.external_urls))
    return Counter({"": deployment.replicas_min})


def is_current(replica: Replica, deployment: DeploymentRecord, wanted: Counter[str]) -> bool:
    """Tell whether a replica runs what the deployment now asks for, where it may still run."""
    mine = replica.deployment
    return (
        mine.engine == deployment.engine
        and mine.variant_id == deployment.variant_id
        and mine.weights == deployment.weights
        and mine.slots == deployment.slots
        and mine.engine_arguments == deployment.engine_arguments
        and (deployment.engine != "external" or replica.place in wanted)
    )


def least_useful(replicas: list[Replica]) -> list[Replica]:
    """Return replicas not yet ready first, then the youngest."""
    return sorted(
        replicas, key=lambda r: (r.state == "ready", -r.started_at.timestamp(), r.replica_id)
    )
