"""Wiring one fleet together, from top to bottom."""

import asyncio
import signal
from contextlib import suppress

import aiohttp
import structlog

from serving.contract.records import DeploymentRecord
from serving.engine.adapters import adapters
from serving.feed.follower import Follower
from serving.feed.source import HttpSource
from serving.fleet.config import FleetConfig
from serving.fleet.fleet import Fleet
from serving.fleet.grammars import Grammars
from serving.fleet.metrics import registry_of
from serving.fleet.report import HttpSend, NotReported, Reporter
from serving.fleet.server import FleetServer
from serving.fleet.store import Store

log = structlog.get_logger(__name__)

FEED_PATH = "/internal/v1/feed"


async def run(config: FleetConfig) -> None:
    """Adopt, serve, follow and reconcile until SIGTERM or SIGINT; then close in order.

    Raises DirectoryTaken, and OSError when the port is taken.
    """
    store = Store(config.directory)
    stored = store.open()
    engines = adapters(otlp_endpoint=config.otlp_endpoint, kv_cache_gib=config.kv_cache_gib)
    # Engines close idle connections when they please: a fresh one costs nothing on loopback.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        fleet = Fleet(config, engines, store, session)
        source = HttpSource(session, config.control_url + FEED_PATH, config.internal_secret)
        follower = Follower(source, {"deployment": DeploymentRecord})
        send = HttpSend(session, config.control_url, config.internal_secret)
        reporter = Reporter(fleet, send)
        grammars = Grammars(engines)
        registry = registry_of(fleet, follower, reporter)
        server = FleetServer(fleet, registry, config.internal_secret, grammars)
        # A reader must never see a fleet that has not yet adopted its replicas.
        fleet.adopt(stored)
        await server.start(config.host, config.port)
        log.info("fleet_started", port=config.port, adopted=len(fleet.replicas))
        await _until_stopped(fleet, follower, reporter)
        await grammars.close()
        await fleet.close()
        # The replicas' last samples: what control does not take now, the next start sends.
        with suppress(NotReported):
            await reporter.report()
        await server.stop()
    store.close()


async def _until_stopped(fleet: Fleet, follower: Follower, reporter: Reporter) -> None:
    """Follow, reconcile and report until a signal comes; an error in any ends the fleet aloud."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stopped = loop.create_task(stopping.wait())
    tasks = [
        loop.create_task(fleet.reconcile_forever()),
        loop.create_task(_follow(fleet, follower)),
        loop.create_task(reporter.sample_forever()),
        loop.create_task(reporter.report_forever()),
    ]
    await asyncio.wait((stopped, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, *tasks):
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _follow(fleet: Fleet, follower: Follower) -> None:
    async for batch in follower.batches():
        fleet.accept(batch)
