"""A stand-in for control, billing and the fleet: the internal HTTP API over plain dictionaries."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from aiohttp import web

from serving.contract.codec import decode, encode
from serving.contract.demand import DemandReport, Strain
from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.idempotency import Claim, Endings, KeepAnswer
from serving.contract.lease import LeaseRequest
from serving.contract.presence import Presence
from serving.contract.records import FleetSizeRecord
from serving.contract.usage import UsageBatch
from serving.fleet.shares import SlotShares
from tests.support.fake_billing import ClockAhead, FakeBilling
from tests.support.fake_keys import FakeKeys

LONG_POLL_SECONDS = 5.0


class Feed:
    """A feed that is changed by hand."""

    def __init__(self) -> None:
        self.version = 0
        self.changes: list[dict[str, Any]] = []
        self.asked_after: list[int] = []
        self.news = asyncio.Event()

    def publish(self, kind: str, id_: str, record: Any) -> None:
        self.publish_raw(kind, id_, None if record is None else json.loads(encode(record)))

    def publish_raw(self, kind: str, id_: str, raw: Any) -> None:
        self.version += 1
        self.changes.append({"version": self.version, "kind": kind, "id": id_, "record": raw})
        self.news.set()
        self.news = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        after = int(request.query["after"])
        self.asked_after.append(after)
        if after >= self.version:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), LONG_POLL_SECONDS)
        fresh = [change for change in self.changes if change["version"] > after]
        return web.json_response({"version": self.version, "snapshot": False, "changes": fresh})


class Billing(FakeBilling):
    """The fake billing over HTTP, which can be down."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False

    async def answer_leases(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=503)
        try:
            reply = self.lease(decode(await request.read(), LeaseRequest))
        except ClockAhead:
            return _conflict()
        return web.Response(body=encode(reply))

    async def answer_usage(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=503)
        try:
            receipt = self.book(decode(await request.read(), UsageBatch))
        except ClockAhead:
            return _conflict()
        return web.Response(body=encode(receipt))


def _conflict() -> web.Response:
    return web.json_response({"error": "clock_ahead: more than 5 minutes"}, status=409)


class Grammars:
    """The fleet's verdicts on grammars: `verdict` for all, or none at all."""

    def __init__(self) -> None:
        self.verdict: GrammarVerdict | None = GrammarVerdict("unknown")
        self.questions: list[GrammarQuestion] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.questions.append(decode(await request.read(), GrammarQuestion))
        if self.verdict is None:
            return web.Response(status=503)
        return web.Response(body=encode(self.verdict))


class Slots:
    """The fleet's division of slots among gateways, by the replicas of a feed."""

    def __init__(self, feed: Feed) -> None:
        self.shares = SlotShares(epoch=1)
        self.reports: list[DemandReport] = []
        self.strains: dict[str, Strain] = {}
        self.is_down = False
        self._feed = feed

    async def answer(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=503)
        report = decode(await request.read(), DemandReport)
        self.reports.append(report)
        reply = self.shares.report(report, self._ready(), time.monotonic())
        return web.Response(body=encode(msgspec.structs.replace(reply, strains=self.strains)))

    def _ready(self) -> dict[str, dict[str, int]]:
        known = {change["id"]: change["record"] for change in self._feed.changes}
        slots: dict[str, dict[str, int]] = {}
        for replica_id, record in known.items():
            if record is not None and record["state"] == "ready":
                slots.setdefault(record["deployment_id"], {})[replica_id] = record["slots"]
        return slots


Call = tuple[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]


class Keys(FakeKeys):
    """The fake idempotency keys over HTTP, which can be down, and slow."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.loses_answers = False
        """Whether it does as it is asked and says nothing of it."""
        self.pause_seconds = self.endings_pause_seconds = 0.0
        self.is_deaf_to_endings = False

    def calls(self) -> dict[str, Call]:
        """What is decoded and asked, by the last part of the address."""
        return {
            "claims": (Claim, self.claim),
            "answers": (KeepAnswer, self.keep),
            "endings": (Endings, self.end),
        }

    async def answer(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.pause_seconds)
        if self.is_down:
            return web.Response(status=503)
        name = request.match_info["name"]
        if name == "endings":
            await asyncio.sleep(self.endings_pause_seconds)
            if self.is_deaf_to_endings:
                return web.Response(status=503)
        kind, service = self.calls()[name]
        reply = service(decode(await request.read(), kind))
        return web.Response(status=500) if self.loses_answers else web.Response(body=encode(reply))


class FakeControl:
    """All of them behind one address."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.gateways: set[str] = set()
        self.counts_gateways = False
        """Whether all hear how many there are."""
        self.grammars = Grammars()
        self.feed = Feed()
        self.fleet = Feed()
        self.slots = Slots(self.fleet)
        self.billing = Billing()
        self.url = ""

    async def answer_presence(self, request: web.Request) -> web.Response:
        """Count who lives."""
        said = decode(await request.read(), Presence)
        known, before = self.gateways, len(self.gateways)
        (known.discard if said.is_leaving else known.add)(said.gateway_id)
        size = FleetSizeRecord(len(known))
        if self.counts_gateways and len(known) != before:
            self.feed.publish("fleet_size", "all", size)
        return web.Response(body=encode(size))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeControl"]:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/internal/v1/feed", self.feed.answer)
        app.router.add_get("/replicas", self.fleet.answer)
        app.router.add_post("/demand", self.slots.answer)
        app.router.add_post("/grammars", self.grammars.answer)
        app.router.add_post("/internal/v1/gateways", self.answer_presence)
        app.router.add_post("/internal/v1/leases", self.billing.answer_leases)
        app.router.add_post("/internal/v1/usage-events", self.billing.answer_usage)
        app.router.add_post("/internal/v1/idempotency/{name}", self.keys.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        try:
            yield self
        finally:
            await runner.cleanup()
