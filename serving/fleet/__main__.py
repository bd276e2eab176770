"""`python -m serving.fleet`: the fleet as a process of its own, wired from top to bottom."""

import argparse
import asyncio
import gc
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp
import structlog
import uvloop

from serving import telemetry
from serving.contract.records import DeploymentRecord
from serving.contract.tiers import DEFAULT_GUARANTEES, Guarantees
from serving.engine.adapter import EngineAdapter, ExternalAdapter
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.engine.vllm import VllmAdapter, installed_device, spare_threads
from serving.feed.follower import FeedFollower, FeedSource
from serving.file_lock import FileLocked
from serving.fleet.config import FleetConfig, read_config
from serving.fleet.engine_counters import CounterReporter
from serving.fleet.grammar_service import GrammarService
from serving.fleet.metrics import registry_of
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.server import FleetServer
from serving.fleet.slot_shares import GRACE_SECONDS, SlotAllocator
from serving.fleet.state_store import FleetStore
from serving.internal_http import InternalCallError, InternalHttpClient

log = structlog.get_logger(__name__)


def adapters(
    *, otlp_endpoint: str | None, kv_cache_gib: int, tokenizers: Path | None = None
) -> Mapping[str, EngineAdapter]:
    """Return one adapter per engine for this machine; `tokenizers` is where copies are kept."""
    vllm = VllmAdapter(installed_device(), otlp_endpoint, kv_cache_gib, spare_threads(), tokenizers)
    return {engine.name: engine for engine in (vllm, SimulatedAdapter(), ExternalAdapter())}


KEEP_ALIVE_SECONDS = 2.0
KINDS = {"deployment": DeploymentRecord}
"""All that a fleet asks control for."""


async def run(config: FleetConfig) -> None:
    """Adopt, serve, follow and reconcile until SIGTERM or SIGINT; then close in order.

    Raises FileLocked, and OSError when the port is taken.
    """
    store = FleetStore(config.directory)
    stored = store.open()
    engines = adapters(
        otlp_endpoint=config.otlp_endpoint,
        kv_cache_gib=config.kv_cache_gib,
        tokenizers=config.directory / "tokenizers",
    )
    # Long enough for the next look at a replica, and shorter than engines keep idle connections.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
    async with aiohttp.ClientSession(connector=connector) as session:
        fleet = FleetReconciler(config, engines, store, session)
        internal_url = f"{config.control_url}/internal/v1"
        source = FeedSource(session, f"{internal_url}/feed", config.credential, kinds=KINDS)
        follower = FeedFollower(source, KINDS)
        grammars = GrammarService(engines, judges_max=config.grammar_judges_max)
        # A reader must never see a fleet that has not yet adopted its replicas.
        fleet.adopt(stored)
        control = InternalHttpClient(session, internal_url, config.credential)
        reporter = CounterReporter(fleet.samples, fleet.fleet_id, control)
        shares = slot_shares(fleet, config.tier_guarantees)
        registry = registry_of(fleet, follower, reporter, shares)
        server = FleetServer(fleet, registry, config.callers, grammars, shares)
        await server.start(config.host, config.port)
        # A search for cycles stops the loop: never among what lives as long as the process.
        gc.collect()
        gc.freeze()
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


def slot_shares(
    fleet: FleetReconciler, guarantees: Guarantees = DEFAULT_GUARANTEES
) -> SlotAllocator:
    """Return nobody's shares yet; where replicas were adopted, gateways may have some."""
    grace = GRACE_SECONDS if fleet.replicas else 0.0
    return SlotAllocator(
        epoch=time.time_ns() // 1_000_000,
        grace_until=time.monotonic() + grace,
        guarantees=guarantees,
        reserved_share=fleet.reserved_share,
    )


async def _until_stopped(
    fleet: FleetReconciler,
    follower: FeedFollower,
    reporter: CounterReporter,
    grammars: GrammarService,
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
        loop.create_task(fleet.sample_forever()),
        loop.create_task(reporter.report_forever()),
    ]
    await asyncio.wait((stopped, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, *tasks):
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _follow(fleet: FleetReconciler, follower: FeedFollower, grammars: GrammarService) -> None:
    async for batch in follower.batches():
        fleet.apply(batch)
        if batch.is_last:
            grammars.set_deployments(fleet.deployments())


def main() -> None:
    """Run until SIGTERM; exit code 2 for a bad setting, 1 for a port or directory taken."""
    grammar = argparse.ArgumentParser(prog="python -m serving.fleet", description=__doc__)
    grammar.epilog = "Configured by the environment; see serving/fleet/config.py."
    grammar.parse_args()
    try:
        config = read_config()
    except ValueError as error:
        grammar.error(str(error))
    telemetry.configure(config.log_format)
    try:
        uvloop.run(run(config))
    except FileLocked as error:
        raise SystemExit(f"fleet: another one runs on {config.directory}: {error}") from error
    except OSError as error:
        raise SystemExit(f"fleet: {config.host}:{config.port}: {error}") from error


if __name__ == "__main__":
    main()
