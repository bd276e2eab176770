"""Three gateways as processes, one Redis, and five kinds of trouble with it: what they let through
together stays within the limit, and nobody waits for Redis."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
import pytest

from serving.contract.records import RateLimitSettings
from serving.engine.simulated.server import SimulatedServer
from serving.engine.simulated.settings import SimulatorSettings
from tests.fixtures import catalog
from tests.fixtures.environment import free_port
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import MESSAGES
from tests.fixtures.redis_server import RedisServer, running_redis
from tests.fixtures.waiting import eventually
from tests.serving.gateway.test_killed import gateway_process

pytestmark = [pytest.mark.integration, pytest.mark.full]
GATEWAYS = 3
LIMIT = 60
BODY = {"model": "demo", "messages": MESSAGES, "max_tokens": 1}
WAIT_SECONDS_MAX = 30.0
"""That a request takes at most with Redis in trouble, which lasts until all are answered; they
wait 50 ms (`limits/test_line.py`)."""


@dataclass
class Three:
    """Three gateways of one control, and one Redis."""

    control: FakeControl
    redis: RedisServer
    urls: list[str]
    session: aiohttp.ClientSession
    slowest: float = 0.0

    async def enter(self, name: str, limit: int = LIMIT) -> str:
        """Let an organization in that may make so many requests a minute, and make one at each
        gateway; return its key."""
        tenant = catalog.tenant(name)
        organization = msgspec.structs.replace(
            tenant.organization, own_limits=RateLimitSettings(requests_per_minute=limit)
        )
        tenant = catalog.Tenant(tenant.secret, organization, tenant.project, tenant.key)
        catalog.publish(self.control, tenant)
        for url in self.urls:

            async def is_known(url: str = url) -> bool:
                return await self.ask(url, tenant.secret, "GET", "/v1/models") == 200

            await eventually(is_known, f"{url} knows the key", every_seconds=0.02)
        return tenant.secret

    async def ask(self, url: str, secret: str, method: str = "POST", path: str = "") -> int:
        """Return the status of one request."""
        began, headers = time.monotonic(), {"authorization": f"Bearer {secret}"}
        path = path or "/v1/chat/completions"
        body = BODY if method == "POST" else None
        async with self.session.request(method, url + path, json=body, headers=headers) as reply:
            await reply.read()
        self.slowest = max(self.slowest, time.monotonic() - began)
        return reply.status

    async def served(self, secret: str, times: int = 40) -> int:
        """Ask each gateway so many times; return how many were served, the rest refused."""
        self.slowest, ends = 0.0, []
        for _ in range(times // 10):
            asked = (self.ask(url, secret) for url in self.urls for _ in range(10))
            ends += await asyncio.gather(*asked)
        assert set(ends) <= {200, 429}
        return ends.count(200)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
async def three(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Three]:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    control, ports = FakeControl(), [free_port() for _ in range(GATEWAYS)]
    control.counts_gateways = True
    engine = SimulatedServer(SimulatorSettings(models=("var_demo",), port=0, context_tokens=512))
    async with AsyncExitStack() as running:
        await running.enter_async_context(control.serving())
        await engine.start()
        running.push_async_callback(engine.stop)
        record = catalog.replica(f"http://127.0.0.1:{engine.port}", slots=64)
        control.fleet.publish("replica", "rep_1", record)
        for number, port in enumerate(ports):
            folder = tmp_path / str(number)
            await running.enter_async_context(gateway_process(folder, control.url, port=port))
        await eventually(lambda: len(control.gateways) == GATEWAYS)
        session = await running.enter_async_context(aiohttp.ClientSession())
        yield Three(control, redis_server, [f"http://127.0.0.1:{port}" for port in ports], session)


Deed = Callable[[RedisServer], None]
TROUBLES: dict[str, tuple[Deed, Deed]] = {
    "frozen": (RedisServer.freeze, RedisServer.thaw),
    "stopped": (RedisServer.stop, RedisServer.start),
    "emptied": (RedisServer.flush, RedisServer.flush),
    "refusing scripts": (RedisServer.refuse_scripts, RedisServer.allow_scripts),
}


async def test_three_gateways_hold_a_limit_through_all_troubles(three: Three) -> None:
    secret = await three.enter("sound")
    began = time.monotonic()
    count = GATEWAYS + await three.served(secret)
    assert LIMIT <= count <= LIMIT + 1 + time.monotonic() - began
    for name, (begin, end) in TROUBLES.items():
        secret = await three.enter(name.replace(" ", "_"))
        began = time.monotonic()
        used = GATEWAYS + await three.served(secret, 10)
        begin(three.redis)
        try:
            used += await three.served(secret)
            assert three.slowest < WAIT_SECONDS_MAX, name
        finally:
            end(three.redis)
        used += await three.served(secret)
        # Nobody's part is used twice, and no more than one part of what was not yet heard of.
        most = LIMIT * (1 + 1 / GATEWAYS) + time.monotonic() - began
        assert LIMIT * 0.9 <= used <= most, name
    secret, ended, began = await three.enter("slow"), asyncio.Event(), time.monotonic()
    slowing = asyncio.create_task(asyncio.to_thread(slow_down, three.redis, ended))
    used = GATEWAYS + await three.served(secret, 80)
    # One may still share with Redis what the parts of the others come on top of.
    most = LIMIT * (2 - 1 / GATEWAYS) + time.monotonic() - began
    assert LIMIT * 0.9 <= used <= most
    assert three.slowest < WAIT_SECONDS_MAX
    ended.set()
    await slowing


def slow_down(server: RedisServer, ended: asyncio.Event) -> None:
    """Have Redis take a tenth of a second for whatever it is asked."""
    while not ended.is_set():
        server.freeze()
        time.sleep(0.1)
        server.thaw()
        time.sleep(0.01)
