"""What a fleet of many models takes by itself: CPU time, and how long a scrape holds its loop."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import aiohttp
import msgspec
from aiohttp import web

from serving.contract.codec import decode, encode
from serving.contract.records import DEFAULT_FLEET, DeploymentRecord
from serving.contract.slot_shares import (
    DemandReport,
    DeploymentDemand,
    ReplicaUsage,
    SlotSharesReply,
)
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.fleet_watched import LoopHold
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import Child, free_port, running
from tests.benchmarks.report import Row, Table
from tests.fixtures.fleet_process import OF_A_GATEWAY, SECRET, Control

DEPLOYMENTS, REPLICAS, GATEWAYS = 300, 100, 10
SECONDS = 20.0
SCRAPES_SECONDS = 0.5
"""Between two scrapes while the loop is watched."""
HEARTBEAT_SECONDS = 0.25
START_SECONDS = 60.0
HISTOGRAMS, BUCKETS = 20, 24
"""Which no fleet reads: vLLM's text has 500 lines."""
TITLE = f"A fleet of {REPLICAS} replicas, {DEPLOYMENTS} models and {GATEWAYS} idle gateways"
REMARKS = (
    "Engines, control and gateways are one other process. Each engine answers as vLLM does, with"
    f" {HISTOGRAMS * BUCKETS + 8} lines of metrics, and counts a token a second. Each gateway"
    f" reports every {HEARTBEAT_SECONDS} s.",
    "The fleet is watched for as long as its CPU time is taken, afterwards, by a clock that ticks"
    " each millisecond: a hold is by how much it was late, and the CPU time that the loop's thread"
    " spent meanwhile.",
)


class Engines:
    """All engines at once: `/N/...` is the engine N."""

    def __init__(self) -> None:
        self.looks = 0
        """How often their metrics were read,"""
        self.reports = 0
        """and how often gateways reported."""
        self._begun = time.monotonic()
        self._filler = "".join(
            f'vllm:histogram_{h}_bucket{{engine="0",le="{b}",model_name="m"}} {b}.0\n'
            for h in range(HISTOGRAMS)
            for b in range(BUCKETS)
        )
        self.application = web.Application()
        self.application.router.add_get("/{engine}/health", self._health)
        self.application.router.add_get("/{engine}/metrics", self._metrics)
        self.application.router.add_post("/{engine}/v1/completions", self._completion)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _: web.Request) -> web.Response:
        self.looks += 1
        tokens = int(time.monotonic() - self._begun)
        counts = {
            "num_requests_running": 3,
            "num_requests_waiting": 0,
            "kv_cache_usage_perc": 0.25,
            "prompt_tokens_total": 10 * tokens,
            "prompt_tokens_cached_total": tokens,
            "generation_tokens_total": tokens,
            "request_success_total": tokens,
        }
        labels = '{engine="0",model_name="m"}'
        lines = "".join(f"vllm:{name}{labels} {value}\n" for name, value in counts.items())
        return web.Response(text=lines + self._filler)

    async def _completion(self, _: web.Request) -> web.Response:
        return web.json_response({"usage": {"prompt_tokens": 1, "completion_tokens": 1}})


@dataclass
class Watched:
    """One round: seconds of CPU and by the clock, holds of the loop, and when scrapes went on."""

    cpu_seconds: float = 0.0
    seconds: float = 0.0
    looks: int = 0
    reports: int = 0
    scrapes: list[tuple[float, float]] = field(default_factory=list)
    holds: list[LoopHold] = field(default_factory=list)
    scrape_bytes: int = 0

    def longest_ms(self, *, in_scrapes: bool, of_cpu: bool) -> float:
        """Return the longest hold during scrapes or between them, in milliseconds."""
        return max(
            (
                1e3 * (hold.cpu_seconds if of_cpu else hold.seconds)
                for hold in self.holds
                if in_scrapes is self._is_in_scrape(hold)
            ),
            default=0.0,
        )

    def _is_in_scrape(self, hold: LoopHold) -> bool:
        begun_at = hold.ended_at - hold.seconds
        return any(begun <= hold.ended_at and begun_at <= ended for begun, ended in self.scrapes)


def measure(plan: Plan) -> Table:
    """Return the fleet's share of a core, and the longest hold of its loop during scrapes."""
    rounds = [asyncio.run(_round(plan, number)) for number in range(plan.rounds)]
    checks = [f"all {REPLICAS} replicas were ready throughout"]
    rows = [
        Row("CPU time", "fleet", "s", [r.cpu_seconds for r in rounds]),
        Row("of", "fleet", "s", [r.seconds for r in rounds]),
        Row("share of a core", "fleet", "%", [100 * r.cpu_seconds / r.seconds for r in rounds]),
        Row("looks at a replica a second", "fleet", "", [r.looks / r.seconds for r in rounds]),
        Row("share reports a second", "fleet", "", [r.reports / r.seconds for r in rounds]),
        *_hold_rows(rounds),
        Row("size of a scrape", "fleet", "kB", [r.scrape_bytes / 1e3 for r in rounds]),
    ]
    return Table(TITLE, rows, checks, REMARKS)


def _hold_rows(rounds: Sequence[Watched]) -> Iterator[Row]:
    for in_scrapes, when in ((True, "during scrapes"), (False, "between scrapes")):
        for of_cpu, what in ((False, "longest hold"), (True, "longest hold, CPU")):
            values = [one.longest_ms(in_scrapes=in_scrapes, of_cpu=of_cpu) for one in rounds]
            yield Row(f"{what}, {when}", "fleet", "ms", values)


async def _round(plan: Plan, number: int) -> Watched:
    control = Control()
    engines = Engines()
    runner = web.AppRunner(engines.application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    await control.start()
    try:
        control.deploy(*_deployments(f"http://127.0.0.1:{runner.addresses[0][1]}"))
        with _fleet(plan, control.url, number) as (child, url):
            return await _watch(child, url, engines)
    finally:
        await control.stop()
        await runner.cleanup()


def _deployments(engines: str) -> Iterator[DeploymentRecord]:
    for number in range(DEPLOYMENTS):
        is_served = number < REPLICAS
        yield DeploymentRecord(
            f"dep_{number}",
            f"var_{number}",
            DEFAULT_FLEET,
            "external",
            "m",
            int(is_served),
            int(is_served),
            external_urls=(f"{engines}/{number}",),
        )


@contextmanager
def _fleet(plan: Plan, control_url: str, number: int) -> Iterator[tuple[Child, str]]:
    port = free_port()
    env = {
        "PENSTOCK_INTERNAL_API_URL": control_url,
        "PENSTOCK_INTERNAL_SECRET": SECRET,
        "PENSTOCK_FLEET_DATA_DIR": str(plan.folder / f"fleet-{number}"),
        "PENSTOCK_FLEET_PORT": str(port),
    }
    command = [sys.executable, "-m", "tests.benchmarks.fleet_watched"]
    with running("fleet", command, folder=plan.folder, cores=plan.split.measured, env=env) as child:
        yield child, f"http://127.0.0.1:{port}"


async def _watch(child: Child, url: str, engines: Engines) -> Watched:
    found = Watched()
    async with aiohttp.ClientSession() as session:
        await _until_ready(session, url)
        gateways = [
            asyncio.create_task(_gateway(session, url, n, engines)) for n in range(GATEWAYS)
        ]
        await asyncio.sleep(2.0)
        cpu, begun = child.cpu_seconds, time.monotonic()
        looks, reports = engines.looks, engines.reports
        while time.monotonic() - begun < SECONDS:
            await asyncio.sleep(5.0)
            await _scrape(session, url)
        found.cpu_seconds, found.seconds = child.cpu_seconds - cpu, time.monotonic() - begun
        found.looks, found.reports = engines.looks - looks, engines.reports - reports
        os.kill(child.process.pid, signal.SIGUSR1)
        begun = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            await asyncio.sleep(SCRAPES_SECONDS)
            scraped_at = time.monotonic()
            found.scrape_bytes = len(await _scrape(session, url))
            found.scrapes.append((scraped_at, time.monotonic()))
        os.kill(child.process.pid, signal.SIGUSR1)
        await asyncio.sleep(1.0)
        await _until_ready(session, url, seconds=0.0)
        for gateway in gateways:
            if gateway.done():
                gateway.result()
            gateway.cancel()
    lines = child.log.read_bytes().splitlines()
    found.holds = next(
        msgspec.json.decode(one, type=list[LoopHold]) for one in reversed(lines) if one[:1] == b"["
    )
    return found


async def _scrape(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(f"{url}/metrics") as answer:
        return await answer.text()


async def _until_ready(
    session: aiohttp.ClientSession, url: str, *, seconds: float = START_SECONDS
) -> None:
    limit, ready = time.monotonic() + seconds, 0
    while True:
        try:
            text = await _scrape(session, url)
            lines = [one for one in text.splitlines() if one.startswith("penstock_fleet_replicas{")]
            ready = sum('state="ready"' in one for one in lines)
        except aiohttp.ClientError:
            ready = 0
        if ready == REPLICAS:
            return
        if time.monotonic() >= limit:
            raise BenchmarkFailed(f"{ready} of {REPLICAS} replicas are ready")
        await asyncio.sleep(0.5)


async def _gateway(session: aiohttp.ClientSession, url: str, number: int, engines: Engines) -> None:
    """Report as an idle gateway does, for ever."""
    headers, base = {"authorization": f"Bearer {OF_A_GATEWAY}"}, 0
    shares: dict[str, int] = {}
    async with session.get(f"{url}/replicas", headers=headers) as answer:
        changes = (await answer.json())["changes"]
    held = {one["record"]["deployment_id"]: one["record"]["replica_id"] for one in changes}
    for turn in count(1):
        demands = {
            id_: DeploymentDemand({one: ReplicaUsage(shares.get(one, 0), 0)})
            for id_, one in held.items()
        }
        report = DemandReport(f"gw_{number}", turn, demands, base=base)
        async with session.post(f"{url}/demand", data=encode(report), headers=headers) as answer:
            reply = decode(await answer.read(), SlotSharesReply)
        shares, base = reply.shares, reply.number
        engines.reports += 1
        await asyncio.sleep(HEARTBEAT_SECONDS)
