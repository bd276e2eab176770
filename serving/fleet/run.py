"""Wiring one fleet together, from top to bottom."""

import asyncio
import signal
import time
from contextlib import suppress

import aiohttp
import structlog

from serving.contract.records import DeploymentRecord
from serving.contract.tiers import DEFAULT_GUARANTEES, Guarantees
from serving.engine.adapters import adapters
from serving.feed.follower import FeedFollower, FeedSource
from serving.fleet.config import FleetConfig
from serving.fleet.fleet import Fleet
from serving.fleet.grammars import Grammars
from serving.fleet.metrics import registry_of
from serving.fleet.report import Reporter
from serving.fleet.server import FleetServer
from serving.fleet.shares import GRACE_SECONDS, SlotShares
from serving.fleet.store import Store
from serving.internal_http import InternalCallError, InternalHttpClient

log = structlog.get_logger(__name__)

KINDS = {"deployment": DeploymentRecord}
"""All that a fleet asks control for."""


async def run(config: FleetConfig) -> None:
    """Adopt, serve, follow and reconcile until SIGTERM or SIGINT; then close in order.

    Raises InUse, and OSError when the port is taken.
    """
    store = Store(config.directory)
    stored = store.open()
    engines = adapters(
        otlp_endpoint=config.otlp_endpoint,
        kv_cache_gib=config.kv_cache_gib,
        tokenizers=config.directory / "tokenizers",
    )
    # Engines close idle connections when they please: a fresh one costs nothing on loopback.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        fleet = Fleet(config, engines, store, session)
        internal_url = f"{config.control_url}/internal/v1"
        source = FeedSource(session, f"{internal_url}/feed", config.credential, kinds=KINDS)
        follower = FeedFollower(source, KINDS)
        reporter = Reporter(fleet, InternalHttpClient(session, internal_url, config.credential))
        grammars = Grammars(engines, judges_max=config.grammar_judges_max)
        # A reader must never see a fleet that has not yet adopted its replicas.
        fleet.adopt(stored)
        shares = slot_shares(fleet, config.tier_guarantees)
        registry = registry_of(fleet, follower, reporter, shares)
        server = FleetServer(fleet, registry, config.callers, grammars, shares)
        await server.start(config.host, config.port)
        log.info("fleet_started", port=config.port, adopted=len(fleet.replicas))
        grammars.set_deployments(fleet.deployments())
        await _until_stopped(fleet, follower, reporter, grammars)
        await grammars.close()
        await fleet.close()
        # The replicas' last samples: what control does not take now, the next start sends.
        with suppress(InternalCallError):
            await reporter.report()
        await server.stop()
    store.close()


def slot_shares(fleet: Fleet, guarantees: Guarantees = DEFAULT_GUARANTEES) -> SlotShares:
    """Return nobody's shares yet; where replicas were adopted, gateways may have some."""
    grace = GRACE_SECONDS if fleet.replicas else 0.0
    return SlotShares(
        epoch=time.time_ns() // 1_000_000,
        grace_until=time.monotonic() + grace,
        guarantees=guarantees,
        reserved_share=fleet.reserved_share,
    )


async def _until_stopped(
    fleet: Fleet, follower: FeedFollower, reporter: Reporter, grammars: Grammars
) -> None:
    """Follow, reconcile and report until a signal comes; an error in any ends the fleet aloud."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stopped = loop.create_task(stopping.wait())
    tasks = [
        loop.create_task(fleet.reconcile_forever()),
        loop.create_task(_follow(fleet, follower, grammars)),
        loop.create_task(reporter.sample_forever()),
        loop.create_task(reporter.report_forever()),
    ]
    await asyncio.wait((stopped, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, *tasks):
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _follow(fleet: Fleet, follower: FeedFollower, grammars: Grammars) -> None:
    async for batch in follower.batches():
        fleet.accept(batch)
        if batch.is_last:
            grammars.set_deployments(fleet.deployments())
