"""What the gateway knows, by what is asked: who, for what, where it runs and what it costs."""

from collections.abc import Callable, Iterator

from serving.contract.records import (
    ContractPriceRecord,
    GatewayCountRecord,
    PriceRecord,
    UsageTierRecord,
)
from serving.feed.changes import ChangeBatch
from serving.feed.mirror import FeedMirror, RecordTable
from serving.gateway.offers import Offers
from serving.gateway.price_list import PriceList
from serving.gateway.principals import Principals
from serving.gateway.running import Running
from serving.pool.pool import Pool


class Directory:
    """Tables of control's feed and of the fleet's: a change costs what it touches."""

    def __init__(self, salt_secret: str, *, make_pool: Callable[[str], Pool] = Pool) -> None:
        self.is_whole = False
        """Whether a key that is not here is no key: false before the first page of the feed."""
        self._fleet_sizes = RecordTable[GatewayCountRecord]()
        self._limit_tiers = RecordTable[UsageTierRecord]()
        self._principals = Principals(salt_secret)
        self._offers = Offers()
        self._running = Running(make_pool)
        self._prices = PriceList()
        self.mirror = FeedMirror(
            {
                "organization": self._principals.organizations,
                "project": self._principals.projects,
                "api_key": self._principals.keys,
                "model": self._offers.models,
                "deployment": self._running.deployments,
                "price": RecordTable[PriceRecord](self._prices.replace),
                "contract_price": RecordTable[ContractPriceRecord](self._prices.replace),
                "fleet_size": self._fleet_sizes,
                "limit_tier": self._limit_tiers,
            }
        )
        self.replicas = FeedMirror({"replica": self._running.replicas})
        self.pools = self._running.pools
        # What is asked is answered by the part that knows.
        self.principal = self._principals.find
        self.is_allowed_somewhere = self._principals.is_allowed_somewhere
        self.model = self._offers.find
        self.models = self._offers.granted
        self.deployments = self._running.deployments_of
        self.runs = self._running.runs
        self.drop_unused_pools = self._running.drop_unused_pools
        self.limit_tier = self._limit_tiers.get
        self.schedule = self._prices.schedule

    @property
    def request_tokens_max(self) -> int:
        """Of all models: what bounds a body before it is known which model it names."""
        return self._offers.request_tokens_max

    @property
    def longest_seconds(self) -> float:
        """How long the longest request may last, on any deployment."""
        return self._running.longest_seconds

    def live_gateway_count(self) -> int:
        """Return how many gateways there are, this one too, as control knows."""
        sizes = (size.live_gateway_count for size in self._fleet_sizes.all())
        return max(1, max(sizes, default=1))

    def apply(self, batch: ChangeBatch) -> None:
        """Take in a batch of control's feed."""
        for _ in self.applying(batch):
            pass

    def applying(self, batch: ChangeBatch) -> Iterator[None]:
        """Take in a batch of control's feed, pausing where it looks at everything."""
        yield from self.mirror.applying(batch)
        if batch.is_last:
            self.is_whole = not batch.is_partial
            self._principals.is_open = True

    def applying_replicas(self, batch: ChangeBatch) -> Iterator[None]:
        """Take in a batch of the fleet's feed, pausing where it looks at everything."""
        yield from self.replicas.applying(batch)
        self._running.tell_pools()
