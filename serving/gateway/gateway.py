"""A gateway, wired from top to bottom, with its ordered start and end."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from serving.contract.client_address import UnknownProxy
from serving.contract.feed import RECORD_OF_KIND
from serving.contract.ids import EventIdGenerator
from serving.engine.http_client import ReplicaClient
from serving.engine.https_client import HttpsReplicaCall, open_session
from serving.feed.follower import FeedSource, Fetch
from serving.feed.subscription import FeedSubscription
from serving.gateway.admission import AdmissionController
from serving.gateway.app import GatewayApp
from serving.gateway.attempt import GatewayServices
from serving.gateway.config import (
    GatewayConfig,
    connections_max,
    memory_bounds,
    memory_limit_bytes,
    raise_open_files_limit,
)
from serving.gateway.count_tokens import PromptCounts
from serving.gateway.directory import Directory
from serving.gateway.failed_requests import FailedRequestLog
from serving.gateway.fleet_link import FleetLink
from serving.gateway.grammar_check import GrammarChecker
from serving.gateway.hedging import run_hedged
from serving.gateway.http.connection_limits import ConnectionLimits
from serving.gateway.http.write_buffer import WriteMemory
from serving.gateway.idempotency.guard import IdempotencyGuard
from serving.gateway.inference import REQUESTS_SHARE, InferenceHandler
from serving.gateway.metrics import GatewayMetrics
from serving.gateway.parse_offload import ParseOffload
from serving.gateway.prefix_sync import PrefixSync
from serving.gateway.rate_limits import RateLimitEnforcer
from serving.gateway.relay import DisconnectDrain
from serving.gateway.render_offload import RenderOffload
from serving.gateway.slot_shares import GrantedSlots
from serving.internal_http import InternalCallError
from serving.limits.limiter import RateLimiter
from serving.limits.plans import RateLimitPlans
from serving.limits.redis_script import NoCounterStore, RedisCounterStore
from serving.pool.overload import ALL_TOKENS_MAX, LoadShedder, SharedCapacity
from serving.pool.pool import Pool
from serving.pool.retry_budget import OrganizationRetryBudgets
from serving.telemetry import open_tracing
from serving.usage.claims import IdempotencyClaims
from serving.usage.clock import GatewayClock
from serving.usage.control_api import ControlApi, DatabaseIdentityCheck, HeartbeatSender
from serving.usage.journal import JOURNAL, Journal
from serving.usage.journal_writer import JournalUnavailable
from serving.usage.lease_sync import LeaseReturnQueue, LeaseSync, exchange_leases
from serving.usage.leases import BillingUnreachable, LeaseManager
from serving.usage.orphaned_journals import OrphanedJournals, save_credential
from serving.usage.shipper import ShipmentFailed, UsageShipper, ship_batch

log = structlog.get_logger(__name__)

LAST_SHIPMENT_SECONDS = 5.0
LAST_REPORT_SECONDS = 1.0
"""How long a stopping gateway reports failed requests, which only people read."""
INFORMED_SECONDS_MAX = 10.0
LEFT_FOR_NEXT_LIFE = (
    ShipmentFailed,
    JournalUnavailable,
    BillingUnreachable,
    InternalCallError,
    TimeoutError,
)
"""What keeps a gateway from handing over what its journal holds."""
UNUSED_POOLS_SECONDS = 5.0
"""Between two searches for pools of deleted deployments."""
FINITE = frozenset({"orphans", "prefix news"})
"""Background tasks that may return: no journal is left to ship, or there is no Redis."""


class Gateway:
    """All parts of one process; made by `build`, run by `__main__`."""

    def __init__(self, config: GatewayConfig, clock: GatewayClock) -> None:
        self.clock = clock
        self.connections = ConnectionLimits(
            connections_max(raise_open_files_limit()),
            config.connections_of_address_max,
        )
        self.connections.proxy_protocol_from = config.proxy_protocol_from
        self.connections.shared = config.trusted_proxies
        unknown_proxy = UnknownProxy(config.trusted_proxies, config.proxy_protocol_from)
        self.connections.unknown_proxy = unknown_proxy
        self.metrics = GatewayMetrics()
        self.tracing = open_tracing(config.traces_endpoint, "penstock-gateway")
        self.session = open_session()
        self.client = ReplicaClient(partial(HttpsReplicaCall, self.session))
        self.pressure = LoadShedder(ALL_TOKENS_MAX)
        self.directory = Directory(
            config.salt_secret, config.key_peppers, make_pool=self._make_pool
        )
        self.journal = Journal(config.directory / JOURNAL, now=clock.time)
        save_credential(config.directory, config.credential)
        self.fleets = self._links(config)
        self.api = ControlApi(self.session, config.control_url, config.credential, clock)
        self.lineage = DatabaseIdentityCheck(self.journal.lineage, self.journal.record_lineage)
        returns = LeaseReturnQueue()
        self.lease_manager = LeaseManager(returns.outbox, wall=clock.now)
        self.poll = LeaseSync(
            partial(exchange_leases, self.api),
            self.lease_manager,
            returns,
            self.journal,
            self.lineage,
        )
        self.poll.adopt(self.journal.recovered_leases)
        self.shipper = UsageShipper(
            self.journal,
            partial(ship_batch, self.api),
            self.poll.acknowledged,
            self.lineage,
            wall=clock.now,
            gather_seconds=config.usage_gather_seconds,
        )
        self.orphans = self._orphans(config)
        self.control_feed = control_feed(
            FeedSource(self.session, f"{config.control_url}/internal/v1/feed", config.credential),
            config.directory / "feed.sqlite3",
            self.directory,
        )
        self.parse_offload = ParseOffload()
        self.render_offload = RenderOffload()
        self.grammars = GrammarChecker(self.session, config.fleet_urls, config.credential)
        self.disconnect_drain = DisconnectDrain()
        self.claims = IdempotencyClaims(self.api, self.journal)
        window = (
            NoCounterStore() if config.redis_url is None else RedisCounterStore(config.redis_url)
        )
        self.limiter = RateLimiter(window, self.live_gateway_count, self.metrics.rate_limited)
        self.presence = HeartbeatSender(self.api, self.journal.gateway_id)
        self.failed_requests = FailedRequestLog(self.api, self.journal.gateway_id)
        self.prefix_news = PrefixSync(
            config.redis_url, self.journal.gateway_id, lambda: self.directory.pools
        )
        self.memory_limit_bytes = memory_limit_bytes()
        self.app = self._make_app(config)
        self.is_listening: Callable[[], bool] = lambda: True
        """Whether clients can connect; whoever listens for it says so."""
        self.is_draining = False
        self._tasks: list[asyncio.Task[None]] = []

    def _orphans(self, config: GatewayConfig) -> OrphanedJournals | None:
        siblings = config.siblings_directory
        if siblings is None:
            return None
        return OrphanedJournals(siblings, config.directory, self.api, self.lineage, self.clock)

    def _links(self, config: GatewayConfig) -> dict[str, FleetLink]:
        return {
            fleet_id: FleetLink(
                fleet_id,
                url,
                session=self.session,
                credential=config.credential,
                directory=self.directory,
                gateway_id=self.journal.gateway_id,
                folder=config.directory,
                report_seconds=config.demand_report_seconds,
            )
            for fleet_id, url in config.fleet_urls.items()
        }

    def _make_app(self, config: GatewayConfig) -> GatewayApp:
        clock, may_hold = self.clock, memory_bounds(self.memory_limit_bytes)
        inference = InferenceHandler(
            GatewayServices(
                self.client,
                self.render_offload,
                self.journal,
                self.metrics,
                OrganizationRetryBudgets(),
                self.disconnect_drain,
                PromptCounts(self.client),
                run_hedged,
            ),
            self.directory,
            AdmissionController(
                self.directory, self.lease_manager, self.journal, clock, self.grammars
            ),
            IdempotencyGuard(
                self.claims,
                self.metrics.keyed,
                gateway_id=self.journal.gateway_id,
                # The oldest: a newer one beside it must not make a repeated request a new one.
                pepper=config.key_peppers[-1],
                copies_bytes_max=may_hold.copies,
            ),
            rate_limits=RateLimitEnforcer(
                self.limiter, RateLimitPlans(self.directory.limit_tier), clock.now
            ),
            parse_offload=self.parse_offload,
            body_memory=SharedCapacity(may_hold.bodies),
            in_progress=SharedCapacity(self.connections.most, REQUESTS_SHARE),
            body_begins_seconds=config.body_begins_seconds,
            tracing=self.tracing,
            trusted_proxies=config.trusted_proxies,
            now=clock.now,
        )
        return GatewayApp(
            inference,
            failed_requests=self.failed_requests,
            make_id=EventIdGenerator(clock.time),
            write_memory=WriteMemory(may_hold.pending),
            unknown_proxy=self.connections.unknown_proxy,
        )

    def _make_pool(self, deployment_id: str, fleet_id: str) -> Pool:
        fleet = self.fleets.get(fleet_id)
        if fleet is None:
            none = GrantedSlots(self.directory.live_gateway_count)
            return Pool(deployment_id, share_of=none.of, may_exceed=none.may_exceed)
        return Pool(
            deployment_id,
            share_of=fleet.shares.of,
            may_exceed=fleet.shares.may_exceed,
            on_demand=fleet.demand.wake,
            on_prompt=self.prefix_news.enqueue,
            all_pressure=self.pressure,
        )

    @property
    def gateways_sharing_slots(self) -> int:
        """How many gateways there are by the fleet that knows of most."""
        return max(fleet.shares.live_gateway_count for fleet in self.fleets.values())

    def live_gateway_count(self) -> int:
        """Return how many gateways there are, this one too: a fleet knows of one that came while
        control was away, control of those that no fleet can hear."""
        return max(self.directory.live_gateway_count(), self.gateways_sharing_slots)

    def ended_tasks(self) -> list[str]:
        """Return the background tasks that ended, which none should."""
        return [task.get_name() for task in self._tasks if _has_died(task)]

    async def load(self) -> None:
        """Take in what all feeds had said when this gateway last ran: to be done before `start`,
        and before anybody is listened to."""
        for fleet in self.fleets.values():
            await fleet.replica_feed.load()
        await self.control_feed.load()

    def start(self) -> None:
        """Start what runs beside the requests."""
        for name, engine_request in self._background().items():
            task = asyncio.get_running_loop().create_task(engine_request, name=name)
            task.add_done_callback(_report)
            self._tasks.append(task)

    async def wait_until_informed(self) -> None:
        """Wait until keys and replicas are known, for some seconds at most: who asks before is
        refused, and might have asked another gateway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(INFORMED_SECONDS_MAX):
                feeds = [fleet.replica_feed for fleet in self.fleets.values()]
                await asyncio.gather(*(feed.known.wait() for feed in (self.control_feed, *feeds)))

    def drain(self) -> None:
        """Say no to the balancer, and let each answer be its connection's last."""
        self.is_draining = True
        self.connections.is_retiring = True

    async def stop(self) -> None:
        """After the last request: ship what is left, return the leases, close the journal."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(fleet.leave() for fleet in self.fleets.values()))
        try:
            async with asyncio.timeout(LAST_SHIPMENT_SECONDS):
                await self.shipper.ship_all()
                await self.poll.return_all()
                await self.claims.send_endings()
                await self.presence.send_leaving()
        except LEFT_FOR_NEXT_LIFE as error:
            # The journal keeps the events, and the next life returns the leases.
            log.warning(
                "usage_left_in_journal", rows=self.journal.unacknowledged_count, error=str(error)
            )
        with suppress(InternalCallError, TimeoutError):
            async with asyncio.timeout(LAST_REPORT_SECONDS):
                await self.failed_requests.send()
        await self.journal.close()
        await self.control_feed.close()
        for fleet in self.fleets.values():
            await fleet.replica_feed.close()
        await self.parse_offload.close()
        await self.render_offload.close()
        await self.limiter.backend.close()
        await self.prefix_news.close()
        self.client.close()
        await self.session.close()
        self.tracing.close()

    async def _drop_unused_pools(self) -> None:
        while True:
            await asyncio.sleep(UNUSED_POOLS_SECONDS)
            self.directory.drop_unused_pools()

    def _background(self) -> dict[str, Coroutine[None, None, None]]:
        beside = {} if self.orphans is None else {"orphans": self.orphans.run()}
        for fleet in self.fleets.values():
            beside |= fleet.background()
        return {
            **beside,
            "control feed": self.control_feed.follow(),
            "control state": self.control_feed.state_writer.run(),
            "leases": self.poll.run(),
            "shipper": self.shipper.run(),
            "idempotency keys": self.claims.run(),
            "rate limits": self.limiter.backend.run(),
            "prefix news": self.prefix_news.run(),
            "presence": self.presence.run(),
            "failed requests": self.failed_requests.run(),
            "unused pools": self._drop_unused_pools(),
        }


def build(config: GatewayConfig, clock: GatewayClock | None = None) -> Gateway:
    """Wire a gateway; needs a running event loop.

    Raises FileLocked, OSError, sqlite3.Error, or ConfigError where too few files may be open.
    """
    config.directory.mkdir(parents=True, exist_ok=True)
    return Gateway(config, clock or GatewayClock())


def _has_died(task: asyncio.Task[None]) -> bool:
    """Tell whether a background task failed, or ended before the gateway stopped it."""
    if not task.done():
        return False
    if not task.cancelled() and task.exception() is not None:
        return True
    # A task that nobody cancelled may still end as cancelled: by a future that somebody else did.
    is_finite = task.get_name() in FINITE and not task.cancelled()
    return not task.cancelling() and not is_finite


def _report(task: asyncio.Task[None]) -> None:
    """Log that a background task ended, which none should."""
    if _has_died(task):
        error = None if task.cancelled() else task.exception()
        log.error("background_task_died", task=task.get_name(), exc_info=error)


def control_feed(fetch: Fetch, path: Path, directory: Directory) -> FeedSubscription:
    """Return the feed of keys, models, prices and deployments."""
    return FeedSubscription(fetch, RECORD_OF_KIND, path, directory.mirror, directory.apply_in_steps)
