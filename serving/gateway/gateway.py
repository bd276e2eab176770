"""A gateway, wired from top to bottom, with its ordered start and end."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

import structlog

from serving.config import GatewayConfig
from serving.engine.transport.client import Client
from serving.engine.transport.tls import open_session
from serving.feed.source import HttpSource
from serving.gateway import descriptors
from serving.gateway.admission import Admission
from serving.gateway.app import App
from serving.gateway.connections import Connections
from serving.gateway.directory import Directory
from serving.gateway.exchange import Means
from serving.gateway.feeds import FollowedFeed, control_feed, replica_feed
from serving.gateway.grammars import GrammarCheck
from serving.gateway.idempotency.once import Once
from serving.gateway.ids import IdMaker
from serving.gateway.lingering import Lingering
from serving.gateway.metrics import Metrics
from serving.gateway.operator import OperatorApp
from serving.gateway.pool_metrics import PoolMetrics
from serving.gateway.prefix_news import PrefixNews
from serving.gateway.preparing.preparation import Preparation
from serving.gateway.presence import Presence
from serving.gateway.rates import Rates
from serving.gateway.slot_shares import DemandReporter, Shares
from serving.limits.checks import Plans
from serving.limits.limiter import Limiter
from serving.limits.window import NoWindow, RedisWindow
from serving.pool.pool import Pool
from serving.pool.pressure import ALL_TOKENS_MAX, Pressure
from serving.pool.retries import RetryBudget
from serving.telemetry import open_tracing
from serving.usage.billing import Billing
from serving.usage.claims import Claims
from serving.usage.clock import Clock
from serving.usage.internal import CallFailed, InternalApi
from serving.usage.journal import JOURNAL, Journal
from serving.usage.lineage import Lineage
from serving.usage.orphans import Orphans
from serving.usage.outbox import Returns
from serving.usage.poll import Poll
from serving.usage.ship import ShipmentFailed, Shipper
from serving.usage.treasury import BillingUnreachable, Treasury
from serving.usage.writer import JournalUnavailable

log = structlog.get_logger(__name__)

LAST_SHIPMENT_SECONDS = 5.0
FEW_CONNECTIONS = 1_024
INFORMED_SECONDS_MAX = 10.0
LEFT_FOR_NEXT_LIFE = (
    ShipmentFailed,
    JournalUnavailable,
    BillingUnreachable,
    CallFailed,
    TimeoutError,
)
"""What keeps a gateway from handing over what its journal holds."""


class Gateway:
    """All parts of one process; made by `build`, run by `__main__`."""

    def __init__(self, config: GatewayConfig, clock: Clock) -> None:
        self.clock = clock
        self.connections = Connections(
            descriptors.connections_max(descriptors.raise_limit()),
            config.connections_of_address_max,
        )
        self.metrics = Metrics()
        self.tracing = open_tracing(config.traces_endpoint, "penstock-gateway")
        self.session = open_session()
        self.client = Client(self.session)
        self.shares = Shares()
        self.pressure = Pressure(ALL_TOKENS_MAX)
        self.directory = Directory(config.salt_secret, make_pool=self._make_pool)
        self.journal = Journal(config.directory / JOURNAL, now=clock.time)
        self.demand = DemandReporter(
            self.session,
            config.fleet_url,
            config.credential,
            gateway_id=self.journal.gateway_id,
            shares=self.shares,
            pools=lambda: self.directory.pools,
        )
        self.api = InternalApi(self.session, config.control_url, config.credential, clock)
        billing = Billing(self.api)
        self.lineage = Lineage(self.journal.lineage, self.journal.note_lineage)
        returns = Returns()
        self.treasury = Treasury(returns.outbox, wall=clock.now)
        self.poll = Poll(billing.leases, self.treasury, returns, self.journal, self.lineage)
        self.poll.adopt(self.journal.left_leases)
        self.shipper = Shipper(
            self.journal,
            billing.usage_events,
            self.poll.acknowledged,
            self.lineage,
            wall=clock.now,
        )
        self.orphans = (
            Orphans(config.siblings_directory, config.directory, self.api, self.lineage, clock)
            if config.siblings_directory
            else None
        )
        self.control_feed, self.replica_feed = self._feeds(config)
        self.preparation = Preparation()
        self.grammars = GrammarCheck(self.session, config.fleet_url, config.credential)
        self.lingering = Lingering()
        self.claims = Claims(self.api, self.journal)
        window = NoWindow() if config.redis_url is None else RedisWindow(config.redis_url)
        count = self.directory.live_gateway_count
        self.limiter = Limiter(window, count, self.metrics.rate_limited)
        self.presence = Presence(self.api, self.journal.gateway_id)
        self.prefix_news = PrefixNews(
            config.redis_url, self.journal.gateway_id, lambda: self.directory.pools
        )
        self.app = self._make_app(config)
        self.operator_app = OperatorApp(self.metrics.registry, self.why_not_ready, self.remarks)
        self._is_draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics.registry.register(PoolMetrics(lambda: self.directory.pools))
        self._add_gauges()

    def _make_app(self, config: GatewayConfig) -> App:
        clock = self.clock
        return App(
            self.directory,
            Admission(self.directory, self.treasury, self.journal, clock, self.grammars),
            Means(
                self.client,
                self.journal,
                self.metrics,
                RetryBudget(),
                self.tracing,
                self.lingering,
            ),
            self.preparation,
            Once(
                self.claims,
                self.metrics.keyed,
                gateway_id=self.journal.gateway_id,
                # The oldest: a newer one beside it must not make a repeated request a new one.
                pepper=config.key_peppers[-1],
            ),
            rates=Rates(self.limiter, Plans(self.directory.limit_tier), clock.now),
            key_peppers=config.key_peppers,
            now=clock.now,
            make_id=IdMaker(clock.time),
        )

    def _make_pool(self, deployment_id: str) -> Pool:
        return Pool(
            deployment_id,
            share_of=self.shares.of,
            on_demand=self.demand.note_news,
            on_prompt=self.prefix_news.tell,
            all_pressure=self.pressure,
        )

    def _feeds(self, config: GatewayConfig) -> tuple[FollowedFeed, FollowedFeed]:
        credential, folder = config.credential, config.directory
        control = HttpSource(
            self.session,
            f"{config.control_url}/internal/v1/feed",
            credential,
            on_date=self.clock.hear,
        )
        fleet = HttpSource(self.session, f"{config.fleet_url}/replicas", credential)
        return (
            control_feed(control, folder / "feed.sqlite3", self.directory),
            replica_feed(fleet, folder / "replicas.sqlite3", self.directory),
        )

    def why_not_ready(self) -> str:
        """Return what keeps this gateway from taking new clients, or nothing."""
        if self._is_draining:
            return "draining"
        if dead := [task.get_name() for task in self._tasks if _has_died(task)]:
            return f"{', '.join(dead)}: ended by an error"
        if not self.control_feed.is_fresh:
            return "no contact with control"
        if self.poll.has_never_been_answered:
            return "billing grants no leases"
        return "" if self.journal.healthy else "journal unavailable"

    def remarks(self) -> list[str]:
        """Return what an operator should know though it goes on."""
        remarks = [str(damage) for damage in self.journal.damages]
        if self.control_feed.keeper.failures:
            remarks.append("the state of control's feed cannot be saved")
        if (remark := self.limiter.remark) is not None:
            remarks.append(remark)
        if self.clock.is_set_by_control:
            skew = f"{self.clock.skew_seconds:+.0f} s"
            remarks.append(f"this host's clock is {skew} off; control's time is taken")
        if self.connections.most < FEW_CONNECTIONS:
            room = f"only {self.connections.most} clients may be connected"
            remarks.append(f"{room}: raise the limit of open files (ulimit -Hn)")
        return remarks

    async def load(self) -> None:
        """Take in what both feeds had said when this gateway last ran: to be done before `start`,
        and before anybody is listened to."""
        await self.replica_feed.load()
        await self.control_feed.load()

    def start(self) -> None:
        """Start what runs beside the requests."""
        for name, work in self._background().items():
            task = asyncio.get_running_loop().create_task(work, name=name)
            task.add_done_callback(_report)
            self._tasks.append(task)

    async def wait_until_informed(self) -> None:
        """Wait until keys and replicas are known, for some seconds at most: who asks before is
        refused, and might have asked another gateway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(INFORMED_SECONDS_MAX):
                await asyncio.gather(self.control_feed.known.wait(), self.replica_feed.known.wait())

    def drain(self) -> None:
        """Say no to the balancer, and let each answer be its connection's last."""
        self._is_draining = True
        self.connections.is_retiring = True

    async def stop(self) -> None:
        """After the last request: ship what is left, return the leases, close the journal."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.shares.is_told:
            await self.demand.leave()
        try:
            async with asyncio.timeout(LAST_SHIPMENT_SECONDS):
                await self.shipper.ship_all()
                await self.poll.give_all_back()
                await self.claims.tell()
                await self.presence.leave()
        except LEFT_FOR_NEXT_LIFE as error:
            # The journal keeps the events, and the next life returns the leases.
            log.warning("usage_left_in_journal", rows=self.journal.done_rows, error=str(error))
        await self.journal.close()
        await self.control_feed.close()
        await self.replica_feed.close()
        await self.preparation.close()
        await self.limiter.line.close()
        await self.prefix_news.close()
        self.client.close()
        await self.session.close()
        self.tracing.close()

    def _background(self) -> dict[str, Coroutine[None, None, None]]:
        beside = {} if self.orphans is None else {"orphans": self.orphans.run()}
        return {
            **beside,
            "control feed": self.control_feed.follow(),
            "control state": self.control_feed.keeper.run(),
            "replica feed": self.replica_feed.follow(),
            "replica state": self.replica_feed.keeper.run(),
            "leases": self.poll.run(),
            "shipper": self.shipper.run(),
            "idempotency keys": self.claims.run(),
            "rate limits": self.limiter.line.run(),
            "prefix news": self.prefix_news.run(),
            "presence": self.presence.run(),
            "slot shares": self.demand.run(),
        }

    def _add_gauges(self) -> None:
        gauge = self.metrics.gauge
        gauge("in_flight", "Requests under way.", lambda: self.app.in_flight)
        lines = self.connections
        gauge("connections", "Of clients.", lambda: len(lines))
        gauge("connections_refused", "There was no room.", lambda: lines.refused)
        gauge("connections_closed_idle", "To make room.", lambda: lines.closed_idle)
        gauge("tokens_under_way", "That wait or run, input.", lambda: self.pressure.tokens)
        gauge("body_bytes", "Of requests under way.", lambda: self.app.bodies.room.held)
        gauge("lingering", "Of these, left by their clients.", lambda: self.lingering.total)
        self._add_gauges_of_feeds()
        self._add_gauges_of_books()
        self._add_gauges_of_others()

    def _add_gauges_of_feeds(self) -> None:
        gauge = self.metrics.gauge
        gauge("feed_age_seconds", "Since control answered.", lambda: self.control_feed.age_seconds)
        gauge(
            "replica_feed_age_seconds",
            "Since fleet answered.",
            lambda: self.replica_feed.age_seconds,
        )
        gauge(
            "state_save_failures",
            "In a row, of what control's feed said.",
            lambda: self.control_feed.keeper.failures,
        )
        gauge(
            "feed_rejected",
            "Records that did not validate.",
            self.control_feed.follower.counts.rejected.total,
        )

    def _add_gauges_of_books(self) -> None:
        gauge, counts = self.metrics.gauge, self.shipper.counts
        gauge("journal_rows", "Events not acknowledged.", lambda: self.journal.done_rows)
        gauge("lease_nanos", "Granted and not yet returned.", self.poll.granted_nanos)
        gauge("leases", "Leases not yet closed.", lambda: len(self.poll.leases))
        gauge("deferred_asks", "Asks put off by billing.", lambda: self.poll.counts.deferred)
        gauge("lineage_changes", "Restored databases met.", lambda: self.lineage.changes)
        gauge("held_nanos", "Held by requests under way.", self.treasury.held_nanos)
        gauge("shipped_events", "Events acknowledged.", lambda: counts.shipped)
        gauge("shipment_failures", "Batches not acknowledged.", lambda: counts.failures)
        orphans = self.orphans
        gauge(
            "orphan_events",
            "Shipped for dead gateways of this host.",
            lambda: 0 if orphans is None else orphans.shipped,
        )
        gauge("sent_again_events", "Events a new database got.", lambda: counts.sent_again)
        gauge(
            "clock_skew_seconds",
            "By how much this host's clock is ahead of control's.",
            lambda: self.clock.skew_seconds,
        )
        gauge("clock_ahead", "Calls refused for our clock.", lambda: self.api.clock_ahead_count)
        gauge("journal_damages", "Files set aside.", lambda: len(self.journal.damages))
        gauge("journal_unreadable_rows", "Rows set aside.", lambda: self.journal.unreadable_rows)
        gauge("kept_bytes", "Acknowledged events kept.", lambda: self.journal.kept_bytes)
        gauge("dead_letters", "Events billing could not book.", lambda: counts.dead_lettered)

    def _add_gauges_of_others(self) -> None:
        gauge = self.metrics.gauge
        gauge("share_failures", "Of asking for slots, in a row.", lambda: self.demand.failures)
        gauge("gateways_sharing_slots", "By the fleet.", lambda: self.shares.live_gateway_count)
        gauge("grammars_unchecked", "Not compiled ahead.", lambda: self.grammars.unchecked_count)
        gauge("preparers_lost", "Processes killed.", lambda: self.preparation.bench.lost_count)
        gauge("keyed_endings_untold", "To control.", lambda: self.claims.untold_count)
        line = self.limiter.line
        gauge(
            "limits_apart",
            "Whether rate limits are held by this gateway's part, without Redis.",
            lambda: not line.is_open,
        )
        gauge("limits_calls", "Calls to Redis for rate limits.", lambda: line.calls)
        gauge("limits_failures", "Of these, without an answer in time.", lambda: line.failures)
        gauge(
            "gateways_sharing_limits", "As control counts them.", self.directory.live_gateway_count
        )
        news = self.prefix_news
        gauge("prefixes_told", "Prompts, to other gateways.", lambda: news.told)
        gauge("prefixes_untold", "Of which nobody heard.", lambda: news.untold)
        gauge("prefixes_heard", "From other gateways.", lambda: news.heard)


def build(config: GatewayConfig, clock: Clock | None = None) -> Gateway:
    """Wire a gateway; needs a running event loop.

    Raises JournalInUse, sqlite3.Error, or ConfigError where too few files may be open.
    """
    config.directory.mkdir(parents=True, exist_ok=True)
    return Gateway(config, clock or Clock())


def _has_died(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


def _report(task: asyncio.Task[None]) -> None:
    """Say loudly that a background task ended by an error, which none should."""
    if _has_died(task):
        log.error("background_task_died", task=task.get_name(), exc_info=task.exception())
