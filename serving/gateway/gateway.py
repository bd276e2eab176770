"""A gateway, wired from top to bottom, with its ordered start and end."""

import asyncio
from collections.abc import Coroutine

import structlog

from serving.config import GatewayConfig
from serving.engine.client import open_session
from serving.feed.source import HttpSource
from serving.gateway.admission import Admission
from serving.gateway.app import App
from serving.gateway.directory import Directory
from serving.gateway.exchange import Means
from serving.gateway.feeds import FollowedFeed, control_feed, replica_feed
from serving.gateway.ids import IdMaker
from serving.gateway.metrics import Metrics
from serving.gateway.operator import OperatorApp
from serving.pool.retries import RetryBudget
from serving.telemetry import open_tracing
from serving.usage.billing import Billing
from serving.usage.journal import Journal
from serving.usage.lineage import Lineage
from serving.usage.outbox import Returns
from serving.usage.poll import Poll
from serving.usage.ship import ShipmentFailed, Shipper
from serving.usage.treasury import BillingUnreachable, Treasury
from serving.usage.writer import JournalUnavailable

log = structlog.get_logger(__name__)

LAST_SHIPMENT_SECONDS = 5.0


class Gateway:
    """All parts of one process; made by `build`, run by `__main__`."""

    def __init__(self, config: GatewayConfig) -> None:
        self.metrics = Metrics()
        self.tracing = open_tracing(config.traces_endpoint, "penstock-gateway")
        self.session = open_session()
        self.directory = Directory(config.salt_secret)
        self.journal = Journal(config.directory / "journal.sqlite3")
        self.billing = Billing(self.session, config.control_url, config.internal_secret)
        self.lineage = Lineage(self.journal.lineage, self.journal.note_lineage)
        returns = Returns()
        self.treasury = Treasury(returns.outbox)
        self.poll = Poll(self.billing.leases, self.treasury, returns, self.journal, self.lineage)
        self.poll.adopt(self.journal.left_leases)
        self.shipper = Shipper(
            self.journal, self.billing.usage_events, self.poll.acknowledged, self.lineage
        )
        self.control_feed, self.replica_feed = self._feeds(config)
        self.app = App(
            self.directory,
            Admission(self.directory, self.treasury, self.journal),
            Means(self.session, self.journal, self.metrics, RetryBudget(), self.tracing),
            key_pepper=config.key_pepper,
            make_id=IdMaker(),
        )
        self.operator_app = OperatorApp(self.metrics.registry, self.why_not_ready)
        self._is_draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._add_gauges()

    def _feeds(self, config: GatewayConfig) -> tuple[FollowedFeed, FollowedFeed]:
        secret, folder = config.internal_secret, config.directory
        control = HttpSource(self.session, f"{config.control_url}/internal/v1/feed", secret)
        fleet = HttpSource(self.session, f"{config.fleet_url}/replicas", secret)
        return (
            control_feed(control, folder / "feed.state", self.directory),
            replica_feed(fleet, folder / "replicas.state", self.directory),
        )

    def why_not_ready(self) -> str:
        """Return what keeps this gateway from taking new clients, or nothing."""
        if self._is_draining:
            return "draining"
        if not self.control_feed.is_fresh:
            return "no contact with control"
        return "" if self.journal.healthy else "journal unavailable"

    def start(self) -> None:
        """Start what runs beside the requests."""
        for name, work in self._background().items():
            task = asyncio.get_running_loop().create_task(work, name=name)
            task.add_done_callback(_report)
            self._tasks.append(task)

    def drain(self) -> None:
        """Say no to the balancer; requests under way go on."""
        self._is_draining = True

    async def stop(self) -> None:
        """After the last request: ship what is left, return the leases, close the journal."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_SHIPMENT_SECONDS):
                await self.shipper.ship_all()
                await self.poll.give_all_back()
        except (ShipmentFailed, JournalUnavailable, BillingUnreachable, TimeoutError) as error:
            # The journal keeps the events, and the next life returns the leases.
            log.warning("usage_left_in_journal", rows=self.journal.done_rows, error=str(error))
        await self.journal.close()
        await self.session.close()
        self.tracing.close()

    def _background(self) -> dict[str, Coroutine[None, None, None]]:
        return {
            "control feed": self.control_feed.follow(),
            "control state": self.control_feed.keep_saved(),
            "replica feed": self.replica_feed.follow(),
            "replica state": self.replica_feed.keep_saved(),
            "leases": self.poll.run(),
            "shipper": self.shipper.run(),
        }

    def _add_gauges(self) -> None:
        gauge, counts = self.metrics.gauge, self.shipper.counts
        gauge("in_flight", "Requests under way.", lambda: self.app.in_flight)
        gauge("journal_rows", "Events not acknowledged.", lambda: self.journal.done_rows)
        gauge("feed_age_seconds", "Since control answered.", lambda: self.control_feed.age_seconds)
        gauge(
            "replica_feed_age_seconds",
            "Since fleet answered.",
            lambda: self.replica_feed.age_seconds,
        )
        gauge(
            "feed_rejected",
            "Records that did not validate.",
            self.control_feed.follower.counts.rejected.total,
        )
        gauge("lease_nanos", "Granted and not yet returned.", self.poll.granted_nanos)
        gauge("leases", "Leases not yet closed.", lambda: len(self.poll.leases))
        gauge("deferred_asks", "Asks put off by billing.", lambda: self.poll.counts.deferred)
        gauge("lineage_changes", "Restored databases met.", lambda: self.lineage.changes)
        gauge("held_nanos", "Held by requests under way.", self.treasury.held_nanos)
        gauge("shipped_events", "Events acknowledged.", lambda: counts.shipped)
        gauge("shipment_failures", "Batches not acknowledged.", lambda: counts.failures)
        gauge("sent_again_events", "Events a new database got.", lambda: counts.sent_again)
        gauge("clock_ahead", "Calls refused for our clock.", lambda: self.billing.clock_ahead_count)
        gauge("kept_bytes", "Acknowledged events kept.", lambda: self.journal.kept_bytes)
        gauge("dead_letters", "Events billing could not book.", lambda: counts.dead_lettered)


def build(config: GatewayConfig) -> Gateway:
    """Wire a gateway; needs a running event loop. Raises sqlite3.Error for a journal in use."""
    config.directory.mkdir(parents=True, exist_ok=True)
    return Gateway(config)


def _report(task: asyncio.Task[None]) -> None:
    """A background task never ends by itself: say so loudly if one does."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_task_died", task=task.get_name(), exc_info=error)
