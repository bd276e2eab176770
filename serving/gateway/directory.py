"""What the gateway knows, arranged for look-ups: digests, names, prices, pools."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_network

from serving.contract.records import (
    ApiKeyRecord,
    ContractPriceRecord,
    DeploymentRecord,
    ModelRecord,
    OrganizationRecord,
    PriceRecord,
    ProjectRecord,
)
from serving.contract.replica import ReplicaRecord
from serving.contract.units import WrittenTier
from serving.feed.batch import Batch
from serving.feed.mirror import Mirror
from serving.gateway.price_list import PriceList, Schedule
from serving.pool.pool import Pool

Network = IPv4Network | IPv6Network
TIER: WrittenTier = "default"
"""What requests are served as: they cannot ask for another tier yet."""
MODEL_KINDS = frozenset({"model", "deployment"})
PRICE_KINDS = frozenset({"price", "contract_price"})


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a key in force, its project and its organization, which may be suspended."""

    key: ApiKeyRecord
    project: ProjectRecord
    organization: OrganizationRecord
    networks: tuple[Network, ...] | None
    cache_salt: str
    budget_ids: tuple[str, ...]

    @property
    def organization_id(self) -> str:
        return self.organization.organization_id

    @property
    def is_suspended(self) -> bool:
        return self.organization.status != "active"


class Directory:
    """Indexes over the mirror of control's feed and of the fleet's."""

    def __init__(self, salt_secret: str, *, make_pool: Callable[[str], Pool] = Pool) -> None:
        self.mirror = Mirror()
        self.is_whole = False
        """Whether a key that is not here is no key: false before the first page of the feed."""
        self.request_tokens_max = 0
        """Of all models: what bounds a body before it is known which model it names."""
        self.pools: dict[str, Pool] = {}
        self._salt_secret = salt_secret.encode()
        self._make_pool = make_pool
        self._principals: dict[str, Principal] = {}
        self._key_digests: dict[str, str] = {}
        self._keys_of: dict[str, set[str]] = {}
        self._origins: Counter[str] = Counter()
        """How many projects allow each."""
        self._origins_of: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, ModelRecord] = {}
        self._prices = PriceList()
        self._deployments: dict[str, list[DeploymentRecord]] = {}

    def principal(self, digest: str) -> Principal | None:
        """Return whose key has this digest; None when unknown or archived."""
        return self._principals.get(digest)

    def is_allowed_somewhere(self, origin: str) -> bool:
        """Tell whether pages of an origin may call with the keys of some project."""
        return origin in self._origins

    def model(self, name: str, organization_id: str) -> ModelRecord | None:
        """Return the variant that answers to `name` for this organization."""
        model = self._names.get(name)
        return model if model is not None and is_granted(model, organization_id) else None

    def models(self, organization_id: str) -> list[ModelRecord]:
        """Return every variant granted to the organization, newest name last."""
        known = self.mirror.all("model", ModelRecord).values()
        granted = [model for model in known if is_granted(model, organization_id)]
        return sorted(granted, key=lambda model: (model.created_at, model.public_id))

    def schedule(
        self, variant_id: str, organization_id: str, at: datetime, tier: WrittenTier = TIER
    ) -> Schedule | None:
        """Return what the variant costs an organization at a moment: bands, the base first."""
        return self._prices.schedule(variant_id, tier, organization_id, at)

    def deployments(self, variant_id: str, organization_id: str) -> list[DeploymentRecord]:
        """Return where a variant runs for an organization: its own deployments first."""
        return [
            deployment
            for deployment in self._deployments.get(variant_id, [])
            if deployment.dedicated_to in (None, organization_id)
        ]

    def runs(self, variant_id: str, organization_id: str) -> bool:
        """Tell whether a variant is meant to run for an organization, or does."""
        return any(
            deployment.replicas_min > 0 or self.pools[deployment.deployment_id].has_ready_replica
            for deployment in self.deployments(variant_id, organization_id)
        )

    def apply(self, batch: Batch) -> None:
        """Take in a batch of control's feed."""
        self.mirror.apply(batch)
        self.is_whole = not batch.is_partial
        kinds = {update.kind for update in batch.updates}
        if batch.snapshot:
            self._index_keys()
            self._origins, self._origins_of = Counter(), {}
            self._index_origins(self.mirror.all("project", ProjectRecord))
        else:
            self._index_changed_keys(batch)
            self._index_origins(update.id for update in batch.updates if update.kind == "project")
        if batch.snapshot or kinds & MODEL_KINDS:
            self._index_models()
        if batch.snapshot or kinds & PRICE_KINDS:
            self._index_prices()

    def apply_replicas(self, replicas: Mirror) -> None:
        """Take in what the fleet's feed says now."""
        by_deployment: dict[str, dict[str, ReplicaRecord]] = {id_: {} for id_ in self.pools}
        for replica_id, record in replicas.all("replica", ReplicaRecord).items():
            by_deployment.setdefault(record.deployment_id, {})[replica_id] = record
        for deployment_id, records in by_deployment.items():
            if deployment_id not in self.pools:
                self.pools[deployment_id] = self._make_pool(deployment_id)
            self.pools[deployment_id].set_replicas(records)

    def _index_changed_keys(self, batch: Batch) -> None:
        """Index the keys that changed, and all keys of organizations that changed."""
        touched: set[str] = set()
        for update in batch.updates:
            record = update.record
            if update.kind == "api_key":
                self._remove_key(update.id)
                touched.add(update.id)
            elif update.kind == "organization":
                touched |= self._keys_of.get(update.id, set())
            elif update.kind == "project" and isinstance(record, ProjectRecord):
                touched |= self._keys_of.get(record.organization_id, set())
            elif update.kind == "project":
                self._index_keys()
                return
        if touched:
            self._index_some_keys(touched)

    def _index_origins(self, project_ids: Iterable[str]) -> None:
        projects = self.mirror.all("project", ProjectRecord)
        for project_id in project_ids:
            for origin in self._origins_of.pop(project_id, ()):
                self._origins[origin] -= 1
                if not self._origins[origin]:
                    del self._origins[origin]
            project = projects.get(project_id)
            if project is not None and project.status == "active" and project.allowed_origins:
                self._origins_of[project_id] = project.allowed_origins
                self._origins.update(project.allowed_origins)

    def _index_some_keys(self, key_ids: set[str]) -> None:
        organizations = self.mirror.all("organization", OrganizationRecord)
        projects = self.mirror.all("project", ProjectRecord)
        keys = self.mirror.all("api_key", ApiKeyRecord)
        for key_id in key_ids:
            self._remove_key(key_id)
            key = keys.get(key_id)
            if key is not None:
                self._add_key(key_id, key, organizations, projects)

    def _index_keys(self) -> None:
        self._principals, self._key_digests, self._keys_of = {}, {}, {}
        self._index_some_keys(set(self.mirror.all("api_key", ApiKeyRecord)))

    def _remove_key(self, key_id: str) -> None:
        digest = self._key_digests.pop(key_id, None)
        if digest is not None:
            self._principals.pop(digest, None)

    def _add_key(
        self,
        key_id: str,
        key: ApiKeyRecord,
        organizations: dict[str, OrganizationRecord],
        projects: dict[str, ProjectRecord],
    ) -> None:
        self._keys_of.setdefault(key.organization_id, set()).add(key_id)
        organization = organizations.get(key.organization_id)
        project = projects.get(key.project_id)
        if organization is None:
            return
        if project is None or project.status != "active":
            return
        if project.organization_id != organization.organization_id:
            return
        self._key_digests[key_id] = key.digest
        self._principals[key.digest] = Principal(
            key=key,
            project=project,
            organization=organization,
            networks=_networks(key),
            cache_salt=self._salt(organization.cache_salt_id),
            budget_ids=organization.budget_ids + project.budget_ids + key.budget_ids,
        )

    def _salt(self, cache_salt_id: str) -> str:
        return hmac.new(self._salt_secret, cache_salt_id.encode(), hashlib.sha256).hexdigest()

    def _index_models(self) -> None:
        self._names, self._deployments = {}, {}
        known = self.mirror.all("model", ModelRecord).values()
        self.request_tokens_max = max((model.request_tokens_max for model in known), default=0)
        for model in known:
            for name in (model.public_id, *model.aliases):
                self._names[name] = model
        for deployment in self.mirror.all("deployment", DeploymentRecord).values():
            self._deployments.setdefault(deployment.variant_id, []).append(deployment)
            if deployment.deployment_id not in self.pools:
                pool = self._make_pool(deployment.deployment_id)
                self.pools[deployment.deployment_id] = pool
        for listed in self._deployments.values():
            listed.sort(key=lambda deployment: deployment.dedicated_to is None)

    def _index_prices(self) -> None:
        self._prices = PriceList(
            self.mirror.all("price", PriceRecord).values(),
            self.mirror.all("contract_price", ContractPriceRecord).values(),
        )


def is_granted(model: ModelRecord, organization_id: str) -> bool:
    """Tell whether an organization may use a model."""
    return model.organization_ids is None or organization_id in model.organization_ids


def _networks(key: ApiKeyRecord) -> tuple[Network, ...] | None:
    """A network that cannot be read matches nothing: a typing error must not open a key."""
    if key.networks is None:
        return None
    networks: list[Network] = []
    for text in key.networks:
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            continue
    return tuple(networks)
