"""A fleet as a process, and a control plane that publishes deployments to it and takes samples."""

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec
import psutil
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from serving.contract.codec import decode, encode
from serving.contract.counters import CountersReply, CountersRequest, EngineSample
from serving.contract.credential import Caller, issue
from serving.contract.feed import Change, Page
from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from serving.fleet.group import REPLICA_VARIABLE
from serving.fleet.store import StoredFleet

Found = TypeVar("Found")
SECRET = "fleet-test-secret"
CREDENTIAL = issue(SECRET, Caller("fleet", "fleet"))
OF_A_GATEWAY = issue(SECRET, Caller("gateway", "test"))
QUICK = {
    "POLL_SECONDS": "0.1",
    "ANSWER_SECONDS": "0.5",
    "STUCK_SECONDS": "1",
    "IDLE_PROBE_SECONDS": "1",
    "DRAIN_GRACE_SECONDS": "0.2",
    "TERM_SECONDS": "3",
    "BACKOFF_FIRST_SECONDS": "0.1",
}
"""Thresholds that make a test quick; the figures of production are the defaults."""


class Control:
    """Publishes deployments as control's change feed does, always as a snapshot; keeps samples
    of engines once by their key, unless it `takes_no_samples`."""

    def __init__(self) -> None:
        self.version = 1
        self.deployments: dict[str, DeploymentRecord] = {}
        self.url = ""
        self.samples: dict[tuple[str, datetime], EngineSample] = {}
        self.fleet_ids: set[str] = set()
        self.takes_no_samples = False
        self._news = asyncio.Event()
        application = web.Application()
        application.router.add_get("/internal/v1/feed", self._feed)
        application.router.add_post("/internal/v1/engine-counters", self._counters)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    def deploy(self, *records: DeploymentRecord) -> None:
        self.deployments = {record.deployment_id: record for record in records}
        self.version += 1
        self._news.set()
        self._news = asyncio.Event()

    async def _feed(self, request: web.Request) -> web.Response:
        assert request.headers["authorization"] == f"Bearer {CREDENTIAL}"
        if int(request.query["after"]) == self.version:
            await asyncio.wait([asyncio.ensure_future(self._news.wait())], timeout=5)
        changes = tuple(
            Change(self.version, "deployment", id_, msgspec.Raw(encode(record)))
            for id_, record in self.deployments.items()
        )
        return web.Response(body=encode(Page(self.version, True, changes)))

    def lives(self) -> dict[str, list[EngineSample]]:
        """Return the samples of each replica, in order."""
        lives: dict[str, list[EngineSample]] = {}
        for key in sorted(self.samples):
            lives.setdefault(key[0], []).append(self.samples[key])
        return lives

    async def _counters(self, request: web.Request) -> web.Response:
        assert request.headers["authorization"] == f"Bearer {CREDENTIAL}"
        if self.takes_no_samples:
            return web.Response(status=503)
        asked = decode(await request.read(), CountersRequest)
        self.fleet_ids.add(asked.fleet_id)
        known = len(self.samples)
        self.samples |= {(one.replica_id, one.at): one for one in asked.samples}
        fresh = len(self.samples) - known
        return web.Response(body=encode(CountersReply(fresh, len(asked.samples) - fresh)))


class FleetProcess:
    """`python -m serving.fleet` on free ports and a directory of its own."""

    def __init__(self, control: Control, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.port = free_ports(1)[0]
        self.base = f"http://127.0.0.1:{self.port}"
        timings = {f"PENSTOCK_FLEET_{name}": value for name, value in QUICK.items()}
        self.environment = os.environ | timings | {
            "PENSTOCK_CONTROL_URL": control.url,
            "PENSTOCK_INTERNAL_SECRET": SECRET,
            "PENSTOCK_FLEET_DIR": str(directory),
            "PENSTOCK_FLEET_KEEP_REPLICAS": "0",
            "PENSTOCK_FLEET_PORT": str(self.port),
            "PENSTOCK_REPLICA_PORT_BASE": str(free_ports(8)[0]),
            "PENSTOCK_REPLICA_COUNT_MAX": "8",
        } | environment  # fmt: skip
        self.process: Process | None = None
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(40))

    async def start(self) -> None:
        with (self.directory.parent / "fleet.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "serving.fleet", env=self.environment, stdout=log, stderr=log
            )

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()

    async def page(self, after: int = 0) -> Page:
        headers = {"authorization": f"Bearer {OF_A_GATEWAY}"}
        url = f"{self.base}/replicas"
        async with self.session.get(url, params={"after": after}, headers=headers) as answer:
            assert answer.status == 200
            return decode(await answer.read(), Page)

    async def replicas(self) -> list[ReplicaRecord]:
        try:
            page = await self.page()
        except aiohttp.ClientConnectionError:
            return []
        return [decode(change.record, ReplicaRecord) for change in page.changes]

    async def ready(self, count: int = 1, seconds: float = 15) -> list[ReplicaRecord]:
        async def are_ready() -> list[ReplicaRecord]:
            found = [one for one in await self.replicas() if one.state == "ready"]
            return found if len(found) == count else []

        return await until(are_ready, seconds)

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels; 0 while the fleet starts."""
        try:
            async with self.session.get(f"{self.base}/metrics") as answer:
                families = text_string_to_metric_families(await answer.text())
        except aiohttp.ClientConnectionError:
            return 0.0
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    @property
    def state_file(self) -> Path:
        """Return where the fleet remembers itself."""
        return self.directory / "fleet.json"

    def stored(self) -> StoredFleet:
        """Return what the fleet remembers."""
        return decode(self.state_file.read_bytes(), StoredFleet)

    def leader(self, replica_id: str) -> int:
        """Return the pid of a replica's engine."""
        [entry] = [one for one in self.stored().replicas if one.replica_id == replica_id]
        assert entry.leader is not None
        return entry.leader.pid

    async def clear_up(self) -> None:
        """End the fleet and everything it ever started."""
        if self.process is not None and self.process.returncode is None:
            await self.end(signal.SIGKILL)
        for pid in self.engines():
            os.killpg(pid, signal.SIGKILL)
        await self.session.close()

    def engines(self) -> list[int]:
        """Return the living processes that this fleet's replicas were started as."""
        logs = {path.stem for path in (self.directory / "logs").glob("*.log")}
        return [pid for pid in psutil.pids() if _replica_of(pid) in logs]


def _replica_of(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or os.getsid(pid) != pid:
            return None
        return process.environ().get(REPLICA_VARIABLE)
    except (psutil.Error, ProcessLookupError):
        return None


@asynccontextmanager
async def running_fleet(
    directory: Path, **environment: str
) -> AsyncIterator[tuple[Control, FleetProcess]]:
    """Start control's stand-in and a fleet; end both and every replica afterwards."""
    control = Control()
    await control.start()
    fleet = FleetProcess(control, directory, **environment)
    try:
        await fleet.start()
        yield control, fleet
    finally:
        await fleet.clear_up()
        await control.stop()


async def until(condition: Callable[[], Awaitable[Found]], seconds: float = 15) -> Found:
    """Ask until the answer is truthy and return it; fail after so many seconds."""
    limit = time.monotonic() + seconds
    while True:
        found = await condition()
        if found:
            return found
        assert time.monotonic() < limit, f"not within {seconds} s; last: {found!r}"
        await asyncio.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Return `count` free ports in a row."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        if first + count < 65_536 and all(_is_free(port) for port in range(first, first + count)):
            return list(range(first, first + count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
