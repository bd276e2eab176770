"""What runs where: the deployments of the change feed and the replicas of the fleet's, in pools."""

from collections.abc import Callable

from serving.contract.records import DeploymentRecord, DeploymentTimeouts
from serving.contract.replica import ReplicaRecord
from serving.feed.mirror import RecordTable
from serving.pool.pool import Pool


class Running:
    """Deployments by variant, dedicated ones first, and a pool for each."""

    def __init__(self, make_pool: Callable[[str], Pool]) -> None:
        self.deployments = RecordTable[DeploymentRecord](self._deployment_changed)
        self.replicas = RecordTable[ReplicaRecord](self._replica_changed)
        self.pools: dict[str, Pool] = {}
        self._make_pool = make_pool
        self._deployments_of: dict[str, list[DeploymentRecord]] = {}
        self._replicas_of: dict[str, dict[str, ReplicaRecord]] = {}
        self._touched: set[str] = set()
        """Deployments whose replicas changed since their pools heard of it."""

    def deployments_of(self, variant_id: str, organization_id: str) -> list[DeploymentRecord]:
        """Return where a variant runs for an organization: its own deployments first."""
        return [
            deployment
            for deployment in self._deployments_of.get(variant_id, [])
            if deployment.dedicated_to in (None, organization_id)
        ]

    @property
    def longest_seconds(self) -> float:
        """How long the longest request may last, on any deployment."""
        known = (deployment.timeouts.total_seconds for deployment in self.deployments.all())
        return max(known, default=DeploymentTimeouts().total_seconds)

    def runs(self, variant_id: str, organization_id: str) -> bool:
        """Tell whether a variant is meant to run for an organization, or does."""
        return any(
            deployment.replicas_min > 0 or self.pools[deployment.deployment_id].has_ready_replica
            for deployment in self.deployments_of(variant_id, organization_id)
        )

    def drop_unused_pools(self) -> None:
        """Drop each pool whose deployment is deleted, once its last replica is gone and its last
        request has ended."""
        for deployment_id, pool in list(self.pools.items()):
            is_wanted = self.deployments.get(deployment_id) or self._replicas_of.get(deployment_id)
            if not is_wanted and pool.is_idle:
                del self.pools[deployment_id]

    def tell_pools(self) -> None:
        """Bring pools to what is known of their replicas."""
        for deployment_id in self._touched:
            self._add_pool(deployment_id)
            self.pools[deployment_id].set_replicas(self._replicas_of.get(deployment_id, {}))
        self._touched.clear()

    def _add_pool(self, deployment_id: str) -> None:
        if deployment_id not in self.pools:
            self.pools[deployment_id] = self._make_pool(deployment_id)

    def _deployment_changed(
        self, before: DeploymentRecord | None, after: DeploymentRecord | None
    ) -> None:
        if before is not None:
            listed = self._deployments_of[before.variant_id]
            listed.remove(before)
            if not listed:
                del self._deployments_of[before.variant_id]
            if after is None:
                self.pools[before.deployment_id].retire()
        if after is not None:
            listed = self._deployments_of.setdefault(after.variant_id, [])
            listed.append(after)
            listed.sort(key=lambda deployment: deployment.dedicated_to is None)
            self._add_pool(after.deployment_id)
            self.pools[after.deployment_id].configure(after)

    def _replica_changed(self, before: ReplicaRecord | None, after: ReplicaRecord | None) -> None:
        if before is not None:
            replicas = self._replicas_of[before.deployment_id]
            del replicas[before.replica_id]
            if not replicas:
                del self._replicas_of[before.deployment_id]
            self._touched.add(before.deployment_id)
        if after is not None:
            self._replicas_of.setdefault(after.deployment_id, {})[after.replica_id] = after
            self._touched.add(after.deployment_id)
