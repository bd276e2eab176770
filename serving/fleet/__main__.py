"""`python -m serving.fleet`: the fleet as a process of its own, wired from top to bottom."""

import argparse
import asyncio
import gc
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import structlog
import uvloop
from prometheus_client import CollectorRegistry

from serving import telemetry
from serving.contract.records import DeploymentRecord
from serving.contract.tiers import DEFAULT_GUARANTEES, Guarantees
from serving.engine.adapter import EngineAdapter, ExternalAdapter
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.engine.vllm import VllmAdapter, installed_device, spare_threads
from serving.feed.follower import FeedFollower, FeedSource
from serving.file_lock import FileLocked
from serving.fleet.adoption import adopt, end_orphans
from serving.fleet.config import FleetConfig, read_config
from serving.fleet.engine_counters import CounterReporter
from serving.fleet.grammar_service import GrammarService
from serving.fleet.metrics import registry_of
from serving.fleet.ownership import FleetOwnership
from serving.fleet.ray_launcher import RayLauncher
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.replica import ManagedReplica
from serving.fleet.server import FleetServer
from serving.fleet.slot_shares import GRACE_SECONDS, SlotAllocator
from serving.fleet.state_store import FleetStore, StoredFleet
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
    """Register, adopt, serve, follow and reconcile until SIGTERM or SIGINT; then close in order.

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
        launcher = RayLauncher(config) if config.launcher == "ray" else None
        fleet = FleetReconciler(config, engines, store, session, launcher)
        internal_url = f"{config.control_url}/internal/v1"
        source = FeedSource(session, f"{internal_url}/feed", config.credential, kinds=KINDS)
        grammars = GrammarService(engines, judges_max=config.grammar_judges_max)
        control = InternalHttpClient(session, internal_url, config.credential)
        ownership = FleetOwnership(store, config.fleet_id, control)
        reporter = CounterReporter(fleet.samples, ownership.instance_id, control)
        tasks = FleetTasks(
            *(fleet, stored, ownership, FeedFollower(source, KINDS), reporter, grammars),
            slot_shares(fleet, config.tier_guarantees),
        )
        server = FleetServer(
            fleet, tasks.registry, config.callers, grammars, tasks.shares, ownership=ownership
        )
        await server.start(config.host, config.port)
        log.info("fleet_started", port=config.port)
        await _until_stopped(tasks.work())
        await grammars.close()
        await fleet.close()
        # The replicas' last samples: what control does not take now, the next start sends.
        with suppress(InternalCallError):
            await reporter.report()
        await server.stop()
    store.close()


@dataclass(frozen=True, slots=True)
class FleetTasks:
    """What works from the start of the process to its end."""

    fleet: FleetReconciler
    stored: StoredFleet
    ownership: FleetOwnership
    follower: FeedFollower
    reporter: CounterReporter
    grammars: GrammarService
    shares: SlotAllocator

    @property
    def registry(self) -> CollectorRegistry:
        return registry_of(self.fleet, self.follower, self.reporter, self.shares)

    async def work(self) -> None:
        """Adopt once this life owns the fleet, then follow, reconcile and report for ever."""
        await self.ownership.acquire()
        self.fleet.confirm = self.ownership.confirm
        async with asyncio.TaskGroup() as group:
            heartbeats = group.create_task(self.ownership.keep())
            left = await adopt(self.fleet, self.stored, self.ownership.generation)
            # Where replicas were adopted, gateways may have some of their slots.
            grace_seconds = GRACE_SECONDS if self.fleet.replicas else 0.0
            self.shares.grace_until = time.monotonic() + grace_seconds
            log.info("fleet_adopted", count=len(self.fleet.replicas))
            # A search for cycles stops the loop: never among what lives as long as the process.
            gc.collect()
            gc.freeze()
            self.grammars.set_deployments(self.fleet.deployments())
            for each in (
                *(self._stand_down_after(heartbeats), self._follow(), self._reconcile(left)),
                *(self.fleet.sample_forever(), self.reporter.report_forever()),
                self.fleet.launcher.work(self.fleet.replicas, self.fleet.may_end),
            ):
                group.create_task(each)

    async def _stand_down_after(self, heartbeats: asyncio.Task[None]) -> None:
        await heartbeats
        self.fleet.stand_down()

    async def _reconcile(self, left: Sequence[ManagedReplica]) -> None:
        """Start nothing before what holds memory and devices for nobody is gone."""
        await end_orphans(self.fleet.store.directory, self.fleet.replicas, left)
        await self.fleet.reconcile_forever()

    async def _follow(self) -> None:
        async for batch in self.follower.batches():
            self.fleet.apply(batch)
            if batch.is_last:
                self.grammars.set_deployments(self.fleet.deployments())


def slot_shares(
    fleet: FleetReconciler, guarantees: Guarantees = DEFAULT_GUARANTEES
) -> SlotAllocator:
    """Return nobody's shares yet, of which none is granted before the fleet has adopted."""
    return SlotAllocator(
        epoch=time.time_ns() // 1_000_000,
        grace_until=float("inf"),
        guarantees=guarantees,
        reserved_share=fleet.reserved_share,
    )


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Work until a signal comes; an error ends the fleet aloud."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    tasks = [loop.create_task(stopping.wait()), loop.create_task(work)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


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
