"""A stand-in for control, billing and fleet: a few organizations, one model, its replicas, no
database.

`python -m tests.benchmarks.stand_in --port N --engine-url URL --digest HEX`. It grants every lease,
divides the replicas' slots as a fleet does, accepts every usage event once, recomputes each charge,
and tells at `/tally` what was booked. Each `--digest` is the key of an organization of its own,
each `--engine-url` a replica.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import typer
import uvloop
from aiohttp import web

from serving.contract import records
from serving.contract.budget import balance_budget_id, period_start
from serving.contract.codec import decode, encode
from serving.contract.feed import FeedChange, FeedPage
from serving.contract.grammar import GrammarQuestion
from serving.contract.ids import new_id
from serving.contract.lease import LeaseAsk, LeaseGrant, LeaseReply, LeaseRequest
from serving.contract.price import charge
from serving.contract.replica import ReplicaRecord
from serving.contract.slot_shares import DemandReport
from serving.contract.units import TIERS
from serving.contract.usage import UsageBatch, UsageEvent, UsageReceipt
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.fleet.grammar_service import GrammarService
from serving.fleet.slot_shares import SlotAllocator
from tests.benchmarks.mock import MODEL

CONTEXT_TOKENS = 2_048
VOCABULARY_SIZE = 1_024
SLOTS = 4_096
CAPABILITIES = (
    *("chat", "completions", "stream", "cache_salt", "json_schema", "logprobs"),
    *("continuous_usage", "stream_interval"),
)
QUEUE_SECONDS = 30.0
POLL_SECONDS = 20.0
LEASE_MINUTES = 15
LINEAGE = "bench"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
VARIANT_ID = "var_bench"
PRICE = records.PriceRecord(
    price_id="price_bench",
    variant_id=VARIANT_ID,
    tier="default",
    input_nanos=150_000_000,
    cached_input_nanos=75_000_000,
    output_nanos=600_000_000,
    effective_at=BEGAN,
)


EMBEDS = ("embeddings", "request_id", "priority", "no_prefix_cache")


class Tally(msgspec.Struct):
    """What the usage endpoint was told, each event once."""

    completed: int = 0
    others: int = 0
    duplicates: int = 0
    output_tokens: int = 0
    wrong_charges: int = 0


def control_page(
    digests: Sequence[str],
    dimensions: int | None = None,
    queue_seconds: float = QUEUE_SECONDS,
    context_tokens: int = CONTEXT_TOKENS,
) -> FeedPage:
    """Return the snapshot of a control plane with an organization for each key, and one of
    everything else; a model of so many `dimensions` embeds."""
    tenants = [
        told for number, digest in enumerate(digests) for told in _tenant(f"bench_{number}", digest)
    ]
    prices = [
        msgspec.structs.replace(PRICE, price_id=f"price_bench_{tier}", tier=tier) for tier in TIERS
    ]
    return _snapshot(
        [
            *tenants,
            ("model", VARIANT_ID, _model(dimensions, context_tokens)),
            (
                "deployment",
                "dep_bench",
                deployment(task=_task(dimensions), queue_seconds=queue_seconds),
            ),
            *(("price", price.price_id, price) for price in prices),
        ]
    )


def _tenant(name: str, digest: str) -> list[tuple[str, str, msgspec.Struct]]:
    organization_id, project_id = f"org_{name}", f"proj_{name}"
    budget_ids = (balance_budget_id(organization_id),)
    organization = records.OrganizationRecord(organization_id, "active", budget_ids, f"salt_{name}")
    key = records.ApiKeyRecord(f"key_{name}", digest, organization_id, project_id, ())
    return [
        ("organization", organization_id, organization),
        ("project", project_id, records.ProjectRecord(project_id, organization_id, ())),
        ("api_key", key.key_id, key),
    ]


def replica_page(*engine_urls: str, dimensions: int | None = None, slots: int = SLOTS) -> FeedPage:
    """Return the snapshot of a fleet with a ready replica at each url."""
    capabilities = CAPABILITIES if dimensions is None else EMBEDS
    replicas = [
        ReplicaRecord(
            f"rep_bench_{number}", "dep_bench", url, "ready", slots, BEGAN, "vllm", capabilities
        )
        for number, url in enumerate(engine_urls)
    ]
    return _snapshot([("replica", replica.replica_id, replica) for replica in replicas])


def _task(dimensions: int | None) -> records.Task:
    return "generate" if dimensions is None else "embed"


def _model(dimensions: int | None, context_tokens: int) -> records.ModelRecord:
    return records.ModelRecord(
        variant_id=VARIANT_ID,
        model_id="mdl_bench",
        public_id=MODEL,
        aliases=(),
        precision="bf16",
        context_tokens=context_tokens,
        output_tokens_max=context_tokens,
        vocabulary_size=VOCABULARY_SIZE,
        created_at=BEGAN,
        capabilities=CAPABILITIES,
        task=_task(dimensions),
        dimensions=dimensions,
    )


def deployment(
    weights: str = "bench",
    slots: int = SLOTS,
    task: records.Task = "generate",
    queue_seconds: float = QUEUE_SECONDS,
) -> records.DeploymentRecord:
    """Return the one deployment there is."""
    return records.DeploymentRecord(
        *("dep_bench", VARIANT_ID, records.DEFAULT_FLEET, "vllm", weights),
        replicas_min=1,
        replicas_max=1,
        slots=slots,
        task=task,
        timeouts=records.DeploymentTimeouts(queue_seconds=queue_seconds),
    )


def _snapshot(known: list[tuple[str, str, msgspec.Struct]]) -> FeedPage:
    changes = [
        FeedChange(number, kind, id_, msgspec.Raw(encode(record)))
        for number, (kind, id_, record) in enumerate(known, start=1)
    ]
    return FeedPage(version=len(changes), snapshot=True, changes=tuple(changes))


def granted(ask: LeaseAsk) -> LeaseGrant:
    """Return a lease of all that is wanted."""
    return LeaseGrant(
        ask.ask_id,
        ask.budget_id,
        new_id(),
        ask.want_nanos,
        period=period_start(ask.budget_id, ask.at),
        admits_from=ask.at,
        admits_until=ask.at + timedelta(minutes=LEASE_MINUTES),
    )


class Judged(SimulatedAdapter):
    """The simulated engine, with a compiler that takes as long as a schema says."""

    def grammar_compiler(self, deployment: records.DeploymentRecord) -> tuple[str, ...]:
        """Return its module."""
        return ("tests.fixtures.grammar_judge",)


class StandIn:
    """The endpoints that a gateway calls."""

    def __init__(self, control: FeedPage, replicas: FeedPage) -> None:
        self.control = control
        self.replicas = replicas
        self.shares = SlotAllocator(epoch=1)
        known = [decode(change.record, ReplicaRecord) for change in replicas.changes]
        self.slots = {"dep_bench": {replica.replica_id: replica.slots for replica in known}}
        self.tally = Tally()
        self._seen: set[str] = set()
        self._grammars = GrammarService({deployment().engine: Judged()}, judges_max=1)

    def application(self) -> web.Application:
        """Return the routes as an aiohttp application."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/internal/v1/feed", self.feed)
        app.router.add_get("/replicas", self.fleet)
        app.router.add_post("/internal/v1/gateways/heartbeat", self.gateways)
        app.router.add_post("/demand", self.demand)
        app.router.add_post("/grammars", self.grammars)
        app.router.add_post("/internal/v1/leases", self.leases)
        app.router.add_post("/internal/v1/usage-events", self.usage_events)
        app.router.add_get("/tally", self.tell)
        return app

    async def feed(self, request: web.Request) -> web.Response:
        """Answer control's change feed."""
        return await _page(request, self.control)

    async def fleet(self, request: web.Request) -> web.Response:
        """Answer the fleet's replica feed."""
        return await _page(request, self.replicas)

    async def gateways(self, _: web.Request) -> web.Response:
        """Answer that there is one."""
        return _json(records.GatewayCountRecord(1))

    async def demand(self, request: web.Request) -> web.Response:
        """Divide the slots, as the fleet does."""
        report = decode(await request.read(), DemandReport)
        return _json(self.shares.report(report, self.slots, time.monotonic()))

    async def grammars(self, request: web.Request) -> web.Response:
        """Judge schemas beside, as the fleet does; by what they say of themselves."""
        question = decode(await request.read(), GrammarQuestion)
        return _json(await self._grammars.judge(question, deployment()))

    async def leases(self, request: web.Request) -> web.Response:
        """Grant all that is wanted, for a quarter of an hour, and take every return."""
        asked = decode(await request.read(), LeaseRequest)
        answers = tuple(granted(ask) for ask in asked.asks)
        returned = tuple(back.lease_id for back in asked.returns)
        return _json(LeaseReply(LINEAGE, answers, returned))

    async def usage_events(self, request: web.Request) -> web.Response:
        """Book every event once."""
        batch = decode(await request.read(), UsageBatch)
        new = sum(self.book(decode(raw, UsageEvent)) for raw in batch.events)
        return _json(UsageReceipt(new, duplicates=len(batch.events) - new, lineage=LINEAGE))

    async def tell(self, _: web.Request) -> web.Response:
        """Answer the tally so far."""
        return _json(self.tally)

    def book(self, event: UsageEvent) -> bool:
        """Count an event and check its charge; tell whether it is new."""
        if event.event_id in self._seen:
            self.tally.duplicates += 1
            return False
        self._seen.add(event.event_id)
        if event.outcome == "completed":
            self.tally.completed += 1
            self.tally.output_tokens += event.output_tokens
        else:
            self.tally.others += 1
        self.tally.wrong_charges += _charged(event) != _owed(event)
        return True


def _charged(event: UsageEvent) -> int:
    return sum(charge.charged_nanos for charge in event.charges)


def _owed(event: UsageEvent) -> int:
    if not event.billable:
        return 0
    due = charge(
        PRICE,
        input_tokens=event.input_tokens,
        cached_input_tokens=event.cached_input_tokens,
        output_tokens=event.output_tokens,
        rating=event.rating,
    )
    return due.total_nanos


async def _page(request: web.Request, page: FeedPage) -> web.Response:
    if request.query.get("after") != str(page.version):
        return _json(page)
    await asyncio.sleep(POLL_SECONDS)
    return _json(FeedPage(version=page.version, snapshot=False, changes=()))


def _json(record: msgspec.Struct) -> web.Response:
    return web.Response(body=encode(record), content_type="application/json")


async def serve(app: web.Application, port: int) -> None:
    """Serve for ever on loopback."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def main(  # noqa: PLR0917 -- options of a command line
    port: Annotated[int, typer.Option(help="Loopback port.")],
    engine_url: Annotated[list[str], typer.Option(help="Of a replica; may be repeated.")],
    digest: Annotated[list[str], typer.Option(help="Of an API key; may be repeated.")],
    queue_seconds: Annotated[float, typer.Option(help="For a slot, at most.")] = QUEUE_SECONDS,
    dimensions: Annotated[int | None, typer.Option(help="Of vectors, if it embeds.")] = None,
    slots: Annotated[int, typer.Option(help="Of each replica.")] = SLOTS,
    context_tokens: Annotated[int, typer.Option(help="Of the model.")] = CONTEXT_TOKENS,
) -> None:
    """Serve the stand-in until it is killed."""
    replicas = replica_page(*engine_url, dimensions=dimensions, slots=slots)
    control = control_page(digest, dimensions, queue_seconds, context_tokens)
    stand_in = StandIn(control, replicas)
    uvloop.run(serve(stand_in.application(), port))


if __name__ == "__main__":
    typer.run(main)
