"""A whole gateway in the test's own event loop: real listener, simulated engines, fake control."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import openai

from serving.config import GatewayConfig
from serving.contract.credential import Caller, issue
from serving.contract.usage import UsageEvent
from serving.engine.simulated.server import Server
from serving.engine.simulated.settings import Settings
from serving.gateway.__main__ import Listener, listener
from serving.gateway.gateway import Gateway, build
from serving.usage.clock import Clock
from tests.support import catalog
from tests.support.fake_control import FakeControl

SECRET = "test-internal-secret-0123456789"
CREDENTIAL = issue(SECRET, Caller("gateway", "test"))
MESSAGES = [{"role": "user", "content": "How does a penstock feed a turbine?"}]


async def eventually(claim: Any, seconds: float = 5.0) -> None:
    """Wait until `claim()` is true; fail when it never is."""
    async with asyncio.timeout(seconds):
        while not claim():  # noqa: ASYNC110  whatever the claim is about
            await asyncio.sleep(0.01)


def config(folder: Path, control_url: str, redis_url: str | None = None) -> GatewayConfig:
    """Return a configuration that listens on free ports."""
    return GatewayConfig(
        host="127.0.0.1",
        port=0,
        operator_host="127.0.0.1",
        operator_port=0,
        directory=folder,
        control_url=control_url,
        fleet_url=control_url,
        credential=CREDENTIAL,
        key_peppers=(catalog.PEPPER,),
        salt_secret="test-salt-secret-0123456789",
        redis_url=redis_url,
    )


@dataclass
class Stack:
    """What a test talks to and looks at."""

    control: FakeControl
    folder: Path
    tenant: catalog.Tenant
    engines: list[Server] = field(default_factory=list)
    clients: list[openai.AsyncOpenAI] = field(default_factory=list)
    redis_url: str | None = None
    gateway: Gateway = field(init=False)
    url: str = ""
    _server: Listener = field(init=False)
    _serving: asyncio.Task[None] = field(init=False)

    @property
    def events(self) -> list[UsageEvent]:
        """What billing has booked so far."""
        return list(self.control.billing.events.values())

    async def one_event(self) -> UsageEvent:
        """Wait for the first event and return it."""
        await eventually(lambda: self.events)
        return self.events[0]

    async def start_gateway(self, clock: Clock | None = None) -> None:
        """Build and serve a gateway on the stack's folder."""
        self.gateway = build(config(self.folder, self.control.url, self.redis_url), clock)
        await self.gateway.load()
        self.gateway.start()
        self._server = listener(self.gateway.app, "127.0.0.1", 0, self.gateway.connections)
        self._server.config.timeout_graceful_shutdown = 30
        self._serving = asyncio.create_task(self._server.serve())
        await eventually(lambda: self._server.started)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    async def stop_listening(self) -> None:
        """End the listener after its streams."""
        self._server.should_exit = True
        await self._serving

    async def stop_gateway(self) -> None:
        """Drain, ship, return the leases."""
        self.gateway.drain()
        await self.stop_listening()
        await self.gateway.stop()

    async def start_engine(self, **settings: Any) -> Server:
        """Add a replica."""
        defaults: dict[str, Any] = {
            "models": ("var_demo", "var_embed"),
            "port": 0,
            "context_tokens": 512,
        }
        engine = Server(Settings(**defaults | settings))
        await engine.start()
        self.engines.append(engine)
        number, url = len(self.engines), f"http://127.0.0.1:{engine.port}"
        self.control.fleet.publish("replica", f"rep_{number}", catalog.replica(url, number))
        return engine

    async def offer_embeddings(self) -> None:
        """Offer a second model, `demo-embed`, on the first engine."""
        feed, url = self.control.feed, f"http://127.0.0.1:{self.engines[0].port}"
        feed.publish("model", "var_embed", catalog.embedder())
        feed.publish("price", "price_var_embed", catalog.price("var_embed"))
        feed.publish("deployment", "dep_var_embed", catalog.deployment("var_embed", task="embed"))
        record = catalog.replica(url, 99, "var_embed")
        self.control.fleet.publish("replica", record.replica_id, record)
        pools = self.gateway.directory.pools
        await eventually(
            lambda: "dep_var_embed" in pools and pools["dep_var_embed"].has_ready_replica
        )

    async def ready(self) -> None:
        """Wait until the gateway knows the model, and a replica of which it may take slots."""
        pools = self.gateway.directory.pools
        await eventually(
            lambda: any(one.free for pool in pools.values() for one in pool.replicas.values())
        )
        await eventually(lambda: self.gateway.directory.mirror.version > 0)

    def client(self, secret: str | None = None) -> openai.AsyncOpenAI:
        """Return the official client, which must not retry by itself."""
        client = openai.AsyncOpenAI(
            api_key=secret or self.tenant.secret, base_url=f"{self.url}/v1", max_retries=0
        )
        self.clients.append(client)
        return client

    @asynccontextmanager
    async def post(
        self, path: str, body: Any, headers: dict[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Post JSON, or bytes as they are, with the tenant's key."""
        sent = {"authorization": f"Bearer {self.tenant.secret}"} | (headers or {})
        data = {"data": io.BytesIO(body)} if isinstance(body, bytes) else {"json": body}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + path, headers=sent, **data) as reply,
        ):
            yield reply


@asynccontextmanager
async def running_stack(
    folder: Path,
    *,
    credit_nanos: int = 10**12,
    engines: int = 1,
    redis_url: str | None = None,
    **settings: Any,
) -> AsyncIterator[Stack]:
    """Run a fake control, simulated engines and a gateway that knows them."""
    control, tenant = FakeControl(), catalog.tenant()
    async with control.serving():
        stack = Stack(control, folder, tenant, redis_url=redis_url)
        catalog.publish(control, tenant, credit_nanos=credit_nanos)
        for _ in range(engines):
            await stack.start_engine(**settings)
        await stack.start_gateway()
        await stack.ready()
        try:
            yield stack
        finally:
            for client in stack.clients:
                await client.close()
            await stack.stop_gateway()
            for engine in stack.engines:
                await engine.stop()
