"""The fleet's HTTP: the replica feed for gateways and control, health and metrics."""

import hmac

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from serving.contract.codec import encode
from serving.contract.units import INT64_MAX
from serving.fleet.fleet import Fleet

WAIT_SECONDS = 25.0
"""How long a poll waits for news."""


class FleetServer:
    """Answers on one port; only `/replicas` needs the secret, as only it names addresses."""

    def __init__(
        self,
        fleet: Fleet,
        registry: CollectorRegistry,
        secret: str,
        *,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.fleet = fleet
        self.registry = registry
        self.secret = secret
        self.wait_seconds = wait_seconds
        application = web.Application()
        application.router.add_get("/replicas", self._replicas)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        # A poll in progress must not hold up the end.
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port in use. Raises OSError when it is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _replicas(self, request: web.Request) -> web.Response:
        if not self._is_known(request.headers.get("authorization", "")):
            return web.json_response({"error": "the internal secret is wanted"}, status=401)
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and int(after) <= INT64_MAX):
            return web.json_response({"error": f"after is {after!r}; wanted a number"}, status=400)
        page = await self.fleet.feed.page(int(after), wait_seconds=self.wait_seconds)
        return web.Response(body=encode(page), content_type="application/json")

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self.fleet.is_informed and not self.fleet.is_closing:
            return web.Response(text="ready\n")
        return web.Response(text="no word from control yet, or closing\n", status=503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self.registry),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    def _is_known(self, authorization: str) -> bool:
        wanted = f"Bearer {self.secret}".encode()
        return hmac.compare_digest(authorization.encode(errors="replace"), wanted)
