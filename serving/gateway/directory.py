"""What the gateway knows, by what is asked: which models there are, where each runs, and what it
costs."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter

from serving.contract.price import Schedule
from serving.contract.records import (
    ContractPriceRecord,
    DeploymentRecord,
    DeploymentTimeouts,
    GatewayCountRecord,
    ModelRecord,
    OrganizationRecord,
    PriceRecord,
    Task,
    UsageTierRecord,
)
from serving.contract.replica import ReplicaRecord
from serving.contract.units import WrittenTier
from serving.feed.changes import ChangeBatch
from serving.feed.mirror import FeedMirror, RecordTable
from serving.gateway.auth import Authenticator, Principal, may_use
from serving.gateway.errors import ModelNotFound, ModelTaskMismatch
from serving.pool.pool import Pool


@dataclass(frozen=True, slots=True)
class DatedPriceSchedule:
    """What one price book says of a variant and tier, from a moment on or until another."""

    effective_at: datetime
    ends_at: datetime | None
    bands: Schedule

    def has_ended(self, at: datetime) -> bool:
        """Whether a contract was over by then."""
        return self.ends_at is not None and self.ends_at <= at


Key = tuple[str, WrittenTier, str | None]
"""Variant, tier, and the organization whose contract it is; None for list prices."""


class PriceList:
    """Every published price, by what it prices and since when."""

    def __init__(
        self,
        prices: Iterable[PriceRecord] = (),
        contract_prices: Iterable[ContractPriceRecord] = (),
    ) -> None:
        self._prices: dict[Key, dict[str, PriceRecord]] = {}
        self._listings: dict[Key, list[DatedPriceSchedule]] = {}
        """Of the keys that were asked for since one of their prices changed."""
        for price in (*prices, *contract_prices):
            self.replace(None, price)

    def replace(self, before: PriceRecord | None, after: PriceRecord | None) -> None:
        """Take one price out and put another in."""
        if before is not None:
            key = _key(before)
            self._prices[key].pop(before.price_id)
            self._listings.pop(key, None)
            if not self._prices[key]:
                del self._prices[key]
        if after is not None:
            key = _key(after)
            self._prices.setdefault(key, {})[after.price_id] = after
            self._listings.pop(key, None)

    def schedule(
        self,
        variant_id: str,
        organization_id: str,
        at: datetime,
        tier: WrittenTier = "default",
    ) -> Schedule | None:
        """Return the bands in force for an organization: by its contract, else by the list.

        The newest contract decides: once it has ended, list prices hold, not an older contract.
        """
        own = self._newest((variant_id, tier, organization_id), at)
        if own is None or own.has_ended(at):
            own = self._newest((variant_id, tier, None), at)
        return None if own is None else own.bands

    def _newest(self, key: Key, at: datetime) -> DatedPriceSchedule | None:
        prices = self._prices.get(key)
        if prices is None:
            return None
        dated = self._listings.get(key)
        if dated is None:
            dated = self._listings[key] = _listings(prices.values())
        if dated and dated[-1].effective_at <= at:
            return dated[-1]
        place = bisect_right(dated, at, key=attrgetter("effective_at"))
        return dated[place - 1] if place else None


def _key(price: PriceRecord) -> Key:
    own = price.organization_id if isinstance(price, ContractPriceRecord) else None
    return price.variant_id, price.tier, own


def _listings(prices: Iterable[PriceRecord]) -> list[DatedPriceSchedule]:
    """Group bands by the moment their book takes effect: one book does at a time."""
    books: defaultdict[tuple[datetime, datetime | None], list[PriceRecord]] = defaultdict(list)
    for price in prices:
        ends_at = price.ends_at if isinstance(price, ContractPriceRecord) else None
        books[price.effective_at, ends_at].append(price)
    listings = []
    for (effective_at, ends_at), bands in books.items():
        bands.sort(key=attrgetter("input_tokens_min"))
        # Without its base a schedule is not whole: the one before stays in force.
        if bands[0].input_tokens_min == 0:
            listings.append(DatedPriceSchedule(effective_at, ends_at, tuple(bands)))
    return sorted(listings, key=attrgetter("effective_at"))


class ModelCatalog:
    """Variants by each name that they answer to."""

    def __init__(self) -> None:
        self.models = RecordTable[ModelRecord](self._changed)
        self.request_tokens_max = 0
        """Of all models: what bounds a body before it is known which model it names."""
        self._names: dict[str, ModelRecord] = {}

    def find(self, name: str, organization_id: str) -> ModelRecord | None:
        """Return the variant that answers to `name` for this organization."""
        model = self._names.get(name)
        return model if model is not None and is_granted(model, organization_id) else None

    def granted(self, organization_id: str) -> list[ModelRecord]:
        """Return every variant granted to the organization, newest name last."""
        granted = [model for model in self.models.all() if is_granted(model, organization_id)]
        return sorted(granted, key=lambda model: (model.created_at, model.public_id))

    def _changed(self, before: ModelRecord | None, after: ModelRecord | None) -> None:
        for name in _names(before):
            # It may have passed to another variant in the same breath.
            if self._names.get(name) is before:
                del self._names[name]
        for name in _names(after):
            if after is not None:
                self._names[name] = after
        known = (model.request_tokens_max for model in self.models.all())
        self.request_tokens_max = max(known, default=0)


def is_granted(model: ModelRecord, organization_id: str) -> bool:
    """Tell whether an organization may use a model."""
    return model.organization_ids is None or organization_id in model.organization_ids


def _names(model: ModelRecord | None) -> tuple[str, ...]:
    return () if model is None else (model.public_id, *model.aliases)


class DeploymentTable:
    """Deployments by variant, dedicated ones first, and a pool for each, which is told its
    deployment and the fleet that runs it."""

    def __init__(self, make_pool: Callable[[str, str], Pool]) -> None:
        self.deployments = RecordTable[DeploymentRecord](self._deployment_changed)
        self.pools: dict[str, Pool] = {}
        self.pools_of: dict[str, dict[str, Pool]] = {}
        """The same by fleet."""
        self._make_pool = make_pool
        self._deployments_of: dict[str, list[DeploymentRecord]] = {}
        self._replicas_of: dict[str, dict[str, ReplicaRecord]] = {}
        self._changed: dict[str, str] = {}
        """Deployments whose replicas changed since their pools heard of it, and their fleets."""

    def replicas_of_fleet(self, fleet_id: str) -> RecordTable[ReplicaRecord]:
        """Return a table for the replicas that a fleet states: no other's replace or remove
        them."""
        return RecordTable(partial(self._replica_changed, fleet_id))

    def deployments_of(
        self, variant_id: str, organization: OrganizationRecord
    ) -> list[DeploymentRecord]:
        """Return where a variant runs for an organization: its own deployments first, and none
        outside of the regions that it allows: one that states no region is outside. Whoever sends
        anything to a replica asks here."""
        owners, regions = (None, organization.organization_id), organization.allowed_regions
        return [
            deployment
            for deployment in self._deployments_of.get(variant_id, [])
            if deployment.dedicated_to in owners
            and (regions is None or deployment.region in regions)
        ]

    @property
    def longest_seconds(self) -> float:
        """How long the longest request may last, on any deployment."""
        known = (deployment.timeouts.total_seconds for deployment in self.deployments.all())
        return max(known, default=DeploymentTimeouts().total_seconds)

    def fleet_ids(self) -> set[str]:
        """Return the fleets that deployments name."""
        return {deployment.fleet_id for deployment in self.deployments.all()}

    def runs(self, variant_id: str, organization: OrganizationRecord) -> bool:
        """Tell whether a variant is meant to run for an organization, or does."""
        return any(
            deployment.replicas_min > 0 or self.pools[deployment.deployment_id].has_ready_replica
            for deployment in self.deployments_of(variant_id, organization)
        )

    def drop_unused_pools(self) -> None:
        """Drop each pool whose deployment is deleted, once its last replica is gone and its last
        request has ended."""
        for deployment_id, pool in list(self.pools.items()):
            is_wanted = self.deployments.get(deployment_id) or self._replicas_of.get(deployment_id)
            if not is_wanted and pool.is_idle:
                del self.pools[deployment_id]
                for pools in self.pools_of.values():
                    pools.pop(deployment_id, None)

    def update_pools(self) -> None:
        """Bring pools to what is known of their replicas."""
        for deployment_id, fleet_id in self._changed.items():
            self._add_pool(deployment_id, fleet_id)
            self.pools[deployment_id].set_replicas(self._replicas_of.get(deployment_id, {}))
        self._changed.clear()

    def _add_pool(self, deployment_id: str, fleet_id: str) -> None:
        if deployment_id not in self.pools:
            pool = self.pools[deployment_id] = self._make_pool(deployment_id, fleet_id)
            self.pools_of.setdefault(fleet_id, {})[deployment_id] = pool

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
            self._add_pool(after.deployment_id, after.fleet_id)
            self.pools[after.deployment_id].configure(after)

    def _replica_changed(
        self, fleet_id: str, before: ReplicaRecord | None, after: ReplicaRecord | None
    ) -> None:
        if before is not None:
            replicas = self._replicas_of[before.deployment_id]
            del replicas[before.replica_id]
            if not replicas:
                del self._replicas_of[before.deployment_id]
            self._changed[before.deployment_id] = fleet_id
        if after is not None:
            self._replicas_of.setdefault(after.deployment_id, {})[after.replica_id] = after
            self._changed[after.deployment_id] = fleet_id


def _pool(deployment_id: str, fleet_id: str) -> Pool:
    return Pool(deployment_id)


class Directory:
    """Tables of control's feed and of the fleets': a change costs what it touches."""

    def __init__(
        self,
        salt_secret: str,
        key_peppers: Sequence[str] = (),
        *,
        make_pool: Callable[[str, str], Pool] = _pool,
    ) -> None:
        self._fleet_sizes = RecordTable[GatewayCountRecord]()
        self._limit_tiers = RecordTable[UsageTierRecord]()
        self.authenticator = Authenticator(salt_secret, key_peppers)
        self._catalog = ModelCatalog()
        self._deployments = DeploymentTable(make_pool)
        self._prices = PriceList()
        self.mirror = FeedMirror(
            {
                "organization": self.authenticator.organizations,
                "project": self.authenticator.projects,
                "api_key": self.authenticator.keys,
                "model": self._catalog.models,
                "deployment": self._deployments.deployments,
                "price": RecordTable[PriceRecord](self._prices.replace),
                "contract_price": RecordTable[ContractPriceRecord](self._prices.replace),
                "fleet_size": self._fleet_sizes,
                "limit_tier": self._limit_tiers,
            }
        )
        self.pools = self._deployments.pools
        # What is asked is answered by the part that knows.
        self.principal = self.authenticator.find
        self.is_allowed_somewhere = self.authenticator.is_allowed_somewhere
        self.model = self._catalog.find
        self.models = self._catalog.granted
        self.deployments = self._deployments.deployments_of
        self.runs = self._deployments.runs
        self.fleet_ids = self._deployments.fleet_ids
        self.drop_unused_pools = self._deployments.drop_unused_pools
        self.limit_tier = self._limit_tiers.get
        self.schedule = self._prices.schedule

    def find_model(self, principal: Principal, name: str, task: Task | None = None) -> ModelRecord:
        """Return the model of that name, for a route of this task.

        Raises ModelNotFound when unknown or not granted, ModelTaskMismatch for one that is for
        something else.
        """
        model = self.model(name, principal.organization_id)
        if model is None or not may_use(principal, name, model.public_id, *model.aliases):
            raise ModelNotFound(name)
        if task is not None and model.task != task:
            raise ModelTaskMismatch(name, model.task)
        return model

    @property
    def request_tokens_max(self) -> int:
        """Of all models: what bounds a body before it is known which model it names."""
        return self._catalog.request_tokens_max

    @property
    def longest_seconds(self) -> float:
        """How long the longest request may last, on any deployment."""
        return self._deployments.longest_seconds

    def live_gateway_count(self) -> int:
        """Return how many gateways there are, this one too, as control knows."""
        sizes = (size.live_gateway_count for size in self._fleet_sizes.all())
        return max(1, max(sizes, default=1))

    def apply(self, batch: ChangeBatch) -> None:
        """Take in a batch of control's feed."""
        for _ in self.apply_in_steps(batch):
            pass

    def apply_in_steps(self, batch: ChangeBatch) -> Iterator[None]:
        """Take in a batch of control's feed, pausing where it looks at everything."""
        yield from self.mirror.apply_in_steps(batch)
        if batch.is_last:
            self.authenticator.is_complete = not batch.is_partial
            self.authenticator.is_open = True

    def add_fleet(self, fleet_id: str) -> FeedMirror:
        """Return the mirror of one more fleet's feed."""
        return FeedMirror({"replica": self._deployments.replicas_of_fleet(fleet_id)})

    def pools_of(self, fleet_id: str) -> Mapping[str, Pool]:
        """Return the pools of a fleet's deployments."""
        return self._deployments.pools_of.get(fleet_id, {})

    def apply_replicas_in_steps(self, mirror: FeedMirror, batch: ChangeBatch) -> Iterator[None]:
        """Take in a batch of a fleet's feed, pausing where it looks at everything."""
        yield from mirror.apply_in_steps(batch)
        self._deployments.update_pools()
