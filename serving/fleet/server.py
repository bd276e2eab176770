"""The fleet's HTTP: the replica feed, shares of slots, verdicts on grammars, health, metrics."""

import time

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from serving.contract.codec import ContractError, decode, encode
from serving.contract.credential import SCHEME, Role, ServiceAuthenticator, ServiceIdentity
from serving.contract.grammar import SCHEMAS_BYTES_MAX, GrammarQuestion
from serving.contract.slot_shares import DemandReport
from serving.contract.units import INT64_MAX
from serving.fleet.grammar_service import GrammarService
from serving.fleet.metrics import render
from serving.fleet.ownership import FleetOwnership
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.replica_feed import own_lineage, with_tokens
from serving.fleet.slot_shares import SlotAllocator

log = structlog.get_logger(__name__)

WAIT_SECONDS = 25.0
"""How long a poll waits for news."""
QUESTION_BYTES_MAX = 8 * SCHEMAS_BYTES_MAX
"""Schemas within schemas' JSON: some letters take several more."""


class FleetServer:
    """Answers on one port; `/replicas`, which names addresses, is for gateways and control,
    `/demand` and `/grammars` are for gateways, and `/plans` is for control. The first two are 503
    until this life of the fleet owns its deployments: a gateway keeps what it knows. A superseded
    life divides no slots, and states its replicas as they last were, for gateways that know no
    newer one."""

    def __init__(
        self,
        fleet: FleetReconciler,
        registry: CollectorRegistry,
        callers: ServiceAuthenticator,
        grammars: GrammarService,
        shares: SlotAllocator,
        *,
        ownership: FleetOwnership | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.fleet = fleet
        self.registry = registry
        self.callers = callers
        self.grammars = grammars
        self.shares = shares
        self.ownership = ownership
        self.wait_seconds = wait_seconds
        application = web.Application(client_max_size=QUESTION_BYTES_MAX)
        application.router.add_get("/replicas", self._replicas)
        application.router.add_post("/demand", self._demand)
        application.router.add_post("/grammars", self._grammars)
        application.router.add_get("/plans", self._plans)
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
        caller = self._must_be(request, "gateway", "control")
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and int(after) <= INT64_MAX):
            return web.json_response({"error": f"after is {after!r}; wanted a number"}, status=400)
        self._must_have_generation()
        lineage = request.query.get("lineage")
        credential = request.headers["authorization"].removeprefix(SCHEME)
        is_gateway = caller.role == "gateway"
        if is_gateway:
            lineage = own_lineage(lineage, credential)
        wait_seconds = 0.0 if self.fleet.is_superseded else self.wait_seconds
        page = await self.fleet.feed.page(int(after), lineage, wait_seconds=wait_seconds)
        if is_gateway:
            page = with_tokens(page, credential, self.fleet.gateway_tokens())
        response = web.Response(body=encode(page), content_type="application/json")
        if self.fleet.is_superseded:
            response.force_close()  # the address may lead to the newer life by now
        return response

    async def _demand(self, request: web.Request) -> web.Response:
        caller = self._must_be(request, "gateway")
        self._must_have_generation()
        if self.fleet.is_superseded:
            return web.json_response({"error": "a newer process of the fleet divides"}, status=503)
        try:
            report = decode(await request.read(), DemandReport)
        except ContractError as error:
            return web.json_response({"error": str(error)}, status=400)
        name = self.shares.name_of(report.gateway_id, caller.name)
        if name != caller.name:
            log.warning("demand_refused", caller=str(caller), gateway_id=report.gateway_id, of=name)
            refusal = f"{report.gateway_id} is the gateway {name}, not {caller.name}"
            return web.json_response({"error": refusal}, status=403)
        reply = self.shares.report(report, self.fleet.ready_slots(), time.monotonic())
        self.fleet.note_demand(self.shares.in_use(report.gateway_id))
        reply = msgspec.structs.replace(reply, strains=self.fleet.engine_loads(reply.shares))
        return web.Response(body=encode(reply), content_type="application/json")

    async def _grammars(self, request: web.Request) -> web.Response:
        self._must_be(request, "gateway")
        try:
            question = decode(await request.read(), GrammarQuestion)
        except ContractError as error:
            return web.json_response({"error": str(error)}, status=400)
        deployment = self.fleet.deployment(question.deployment_id)
        verdict = await self.grammars.judge(question, deployment)
        return web.Response(body=encode(verdict), content_type="application/json")

    async def _plans(self, request: web.Request) -> web.Response:
        self._must_be(request, "control")
        return web.Response(body=encode(await self.fleet.plans()), content_type="application/json")

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        problem = self._readiness_problem()
        return web.Response(text=f"{problem or 'ready'}\n", status=503 if problem else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=await render(self.registry),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    def _readiness_problem(self) -> str | None:
        """Return why the fleet would start nothing, None if it would."""
        fleet, own = self.fleet, self.ownership
        if fleet.is_closing:
            return "closing"
        if own is not None and not fleet.generation:
            return f"waits for control to grant fleet {own.fleet_id} a generation: {own.refusal}"
        if own is not None and fleet.is_superseded:
            return (
                f"superseded: a newer process of fleet {own.fleet_id} has registered, so that this "
                f"one, of generation {fleet.generation}, starts and ends nothing. Stop it, or "
                "restart it to take over"
            )
        return None if fleet.is_informed else "no word from control yet"

    def _must_have_generation(self) -> None:
        """Raise HTTPServiceUnavailable unless replicas may be stated."""
        if not self.fleet.generation:
            body = '{"error": "the fleet has no generation yet"}'
            raise web.HTTPServiceUnavailable(text=body, content_type="application/json")

    def _must_be(self, request: web.Request, *roles: Role) -> ServiceIdentity:
        """Return who asks. Raises HTTPUnauthorized unless it shows a credential of such a role."""
        caller = self.callers.find(request.headers.get("authorization", ""))
        if caller is None or caller.role not in roles:
            body = f'{{"error": "wanted the credential of a {" or a ".join(roles)}"}}'
            raise web.HTTPUnauthorized(text=body, content_type="application/json")
        return caller
