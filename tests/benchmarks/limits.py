"""Rate limits of three gateways: what they settle of what is allowed, with Redis up, away, and
coming and going, and what the limits add to a request."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp
import msgspec

from serving.contract.records import RateLimitSettings
from serving.engine.simulated.server import SimulatedServer
from serving.engine.simulated.settings import SimulatorSettings
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port
from tests.benchmarks.report import Row, Table, percentile
from tests.fixtures import catalog
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import CREDENTIAL
from tests.fixtures.redis_server import RedisServer

GATEWAYS = 3
CLIENTS = 4
"""Of each organization at each gateway: they ask again as soon as they are told to."""
ANSWER_TOKENS = 20
PROMPT = "How does a penstock feed a turbine? " * 8
LIMITED = {
    "requests": RateLimitSettings(requests_per_minute=1_200),
    "input tokens": RateLimitSettings(input_tokens_per_minute=30_000),
    "output tokens": RateLimitSettings(output_tokens_per_minute=24_000),
}
RATES = {"requests": 1_200, "input tokens": 30_000, "output tokens": 24_000}
GENEROUS = RateLimitSettings(
    requests_per_minute=10**8,
    input_tokens_per_minute=10**9,
    output_tokens_per_minute=10**9,
    concurrent_requests=10**6,
)
FLAP_SECONDS = 4.0
WAIT_SECONDS_MAX = 1.0
SAMPLES = 1_500
"""Requests of either kind, one after the other, of which the 99th percentile is told."""
BOOKED_SECONDS = 20.0


@dataclass
class Stage:
    """Three gateways of one control, on one Redis."""

    control: FakeControl
    redis: RedisServer
    urls: list[str]
    session: aiohttp.ClientSession
    number: int = 0

    async def enter(self, limits: RateLimitSettings | None) -> catalog.Tenant:
        """Let an organization in, and wait until all gateways know it."""
        self.number += 1
        tenant = catalog.tenant(f"n{self.number}")
        organization = msgspec.structs.replace(tenant.organization, own_limits=limits)
        tenant = catalog.Tenant(tenant.secret, organization, tenant.project, tenant.key)
        catalog.publish(self.control, tenant)
        for url in self.urls:
            while await self._models(url, tenant) != 200:  # noqa: ASYNC110 - within a second
                await asyncio.sleep(0.02)
        return tenant

    async def _models(self, url: str, tenant: catalog.Tenant) -> int:
        async with self.session.get(f"{url}/v1/models", headers=_headers(tenant)) as reply:
            return reply.status

    async def ask(self, url: str, tenant: catalog.Tenant, number: int) -> float | None:
        """Ask once; return how many seconds to wait, None where it was served."""
        prompt = f"{number} of {tenant.key.key_id}: {PROMPT}"
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": ANSWER_TOKENS,
            "ignore_eos": True,
        }
        async with self.session.post(
            f"{url}/v1/chat/completions", json=body, headers=_headers(tenant)
        ) as reply:
            await reply.read()
            if reply.status == 200:
                return None
            if reply.status != 429:
                raise BenchmarkFailed(f"a request was answered {reply.status}")
            return int(reply.headers["retry-after-ms"]) / 1_000

    def settled(self, tenant: catalog.Tenant) -> dict[str, int]:
        """Return what billing was told of an organization."""
        mine = tenant.organization.organization_id
        events = [
            event for event in self.control.billing.events.values() if event.organization_id == mine
        ]
        return {
            "requests": len(events),
            "input tokens": sum(one.input_tokens - one.cached_input_tokens for one in events),
            "output tokens": sum(one.output_tokens for one in events),
        }


Trouble = Callable[[Stage, asyncio.Event], Coroutine[None, None, None]]


def measure(plan: Plan) -> Table:
    """Return settled ÷ allowed of three kinds of limits in three states of Redis, and what limits
    add to the 99th percentile of a request."""
    return asyncio.run(_measure(plan))


async def _measure(plan: Plan) -> Table:
    async with _stage(plan.folder) as stage:
        rows: list[Row] = []
        for name, trouble in TROUBLES.items():
            rows += await _shares(stage, plan.seconds, name, trouble)
        rows += await _added(stage)
    title = f"Rate limits: {GATEWAYS} gateways, {plan.seconds} s in each state of Redis"
    checks = ("every answer was 200, or 429 with a time to come back",)
    remarks = (
        "Settled is what billing was told (uncached input), allowed is rate x time + burst, a"
        " minute's worth. Without Redis each gateway holds a third.",
        f"Coming and going: killed and started anew every {FLAP_SECONDS:.0f} s, its memory lost.",
        f"Added: {SAMPLES} requests of an organization with all limits and of one with none, in"
        " turn, through one gateway.",
    )
    return Table(title, rows, checks, remarks)


async def _shares(stage: Stage, seconds: int, name: str, trouble: Trouble) -> list[Row]:
    tenants = {what: await stage.enter(limits) for what, limits in LIMITED.items()}
    ended = asyncio.Event()
    troubling = asyncio.create_task(trouble(stage, ended))
    await asyncio.sleep(1.0)
    began = time.monotonic()
    await asyncio.gather(
        *(
            _client(stage, url, tenant, began + seconds, number)
            for tenant in tenants.values()
            for url in stage.urls
            for number in range(CLIENTS)
        )
    )
    ended.set()
    await troubling
    await _until_booked(stage, tenants)
    return [
        Row(f"settled ÷ allowed, {what}", name, "", [
            stage.settled(tenant)[what] / (RATES[what] * (seconds / 60 + 1))
        ])
        for what, tenant in tenants.items()
    ]  # fmt: skip


async def _client(
    stage: Stage, url: str, tenant: catalog.Tenant, until: float, number: int
) -> None:
    asked = 0
    while time.monotonic() < until:
        asked += 1
        wait = await stage.ask(url, tenant, asked * 100 + number)
        if wait is not None:
            left = until - time.monotonic()
            await asyncio.sleep(max(min(wait, WAIT_SECONDS_MAX, left), 0))


async def _until_booked(stage: Stage, tenants: dict[str, catalog.Tenant]) -> None:
    """Wait until billing is told nothing new for a second."""
    deadline, before = time.monotonic() + BOOKED_SECONDS, -1
    while (count := len(stage.control.billing.events)) != before:
        if time.monotonic() > deadline:
            raise BenchmarkFailed("billing is told of requests without end")
        before = count
        await asyncio.sleep(1.0)


async def _sound(stage: Stage, ended: asyncio.Event) -> None:
    await ended.wait()


async def _away(stage: Stage, ended: asyncio.Event) -> None:
    stage.redis.freeze()
    await ended.wait()
    stage.redis.thaw()


async def _coming_and_going(stage: Stage, ended: asyncio.Event) -> None:
    while not ended.is_set():
        stage.redis.stop()
        await _pause(ended)
        await asyncio.to_thread(stage.redis.start)
        await _pause(ended)


async def _pause(ended: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), FLAP_SECONDS)


TROUBLES: dict[str, Trouble] = {
    "Redis up": _sound,
    "Redis frozen": _away,
    "Redis coming and going": _coming_and_going,
}


async def _added(stage: Stage) -> list[Row]:
    """Return what limits add to a request, with Redis up and with it frozen."""
    rows: list[Row] = []
    for name in ("Redis up", "Redis frozen"):
        limited, free = await stage.enter(GENEROUS), await stage.enter(None)
        await asyncio.sleep(2.0)
        if name == "Redis frozen":
            stage.redis.freeze()
        seconds = await _alternately(stage, limited, free)
        if name == "Redis frozen":
            stage.redis.thaw()
        added = [1e3 * (with_ - without) for with_, without in zip(*seconds, strict=True)]
        p99 = [1e3 * percentile(one, 99) for one in seconds]
        rows.append(Row("added to a request, median", name, "ms", [median(added)]))
        rows.append(Row("added to the 99th percentile", name, "ms", [p99[0] - p99[1]]))
    return rows


async def _alternately(
    stage: Stage, limited: catalog.Tenant, free: catalog.Tenant
) -> tuple[list[float], list[float]]:
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(SAMPLES + 50):
        for tenant, seen in ((limited, seconds[0]), (free, seconds[1])):
            began = time.perf_counter()
            if await stage.ask(stage.urls[0], tenant, number) is not None:
                raise BenchmarkFailed("a request within its limits was refused")
            seen.append(time.perf_counter() - began)
    # The first ones find connections, leases and the state of Redis.
    return seconds[0][50:], seconds[1][50:]


@asynccontextmanager
async def _stage(folder: Path) -> AsyncIterator[Stage]:
    control, redis = FakeControl(), RedisServer(folder)
    control.counts_gateways = True
    engine = SimulatedServer(
        SimulatorSettings(models=("var_demo",), port=0, context_tokens=512, slots=256)
    )
    async with AsyncExitStack() as running:
        redis.start()
        running.callback(redis.stop)
        running.callback(redis.client.close)
        await running.enter_async_context(control.serving())
        await engine.start()
        running.push_async_callback(engine.stop)
        record = catalog.replica(f"http://127.0.0.1:{engine.port}", slots=256)
        control.fleet.publish("replica", "rep_1", record)
        session = await running.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        urls = [
            await running.enter_async_context(_gateway(folder, number, control, redis, session))
            for number in range(GATEWAYS)
        ]
        while len(control.gateways) < GATEWAYS:  # noqa: ASYNC110 - each says so at its start
            await asyncio.sleep(0.05)
        yield Stage(control, redis, urls, session)


@asynccontextmanager
async def _gateway(
    folder: Path,
    number: int,
    control: FakeControl,
    redis: RedisServer,
    session: aiohttp.ClientSession,
) -> AsyncIterator[str]:
    port, operator_port = free_port(), free_port()
    environment = os.environ | {
        "PENSTOCK_GATEWAY_PORT": str(port),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(operator_port),
        "PENSTOCK_GATEWAY_DATA_DIR": str(folder / f"limits-{number}"),
        "PENSTOCK_INTERNAL_API_URL": control.url,
        "PENSTOCK_FLEET_URL": control.url,
        "PENSTOCK_INTERNAL_CREDENTIAL": CREDENTIAL,
        "PENSTOCK_KEY_PEPPER": catalog.PEPPER,
        "PENSTOCK_SALT_SECRET": "of-a-benchmark-0123456789",
        "PENSTOCK_LOG_FORMAT": "json",
        "REDIS_URL": redis.url,
    }
    with (folder / f"limits-{number}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serving.gateway", env=environment, stdout=log, stderr=log
        )
    try:
        await _until_ready(session, f"http://127.0.0.1:{operator_port}/readyz")
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _until_ready(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(url) as reply:
                    if reply.status == 200:
                        return
            await asyncio.sleep(0.05)


def _headers(tenant: catalog.Tenant) -> dict[str, str]:
    return {"authorization": f"Bearer {tenant.secret}"}
