"""A stand-in for control, billing and the fleet: the internal HTTP API over plain dictionaries."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from serving.contract.codec import decode, encode
from serving.contract.ids import new_id
from serving.contract.lease import Granted, LeaseReply, LeaseRequest, Refused
from serving.contract.usage import UsageBatch, UsageEvent, UsageReceipt

LONG_POLL_SECONDS = 5.0


class Feed:
    """A feed that is changed by hand."""

    def __init__(self) -> None:
        self.version = 0
        self.changes: list[dict[str, Any]] = []
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
        if after >= self.version:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), LONG_POLL_SECONDS)
        fresh = [change for change in self.changes if change["version"] > after]
        return web.json_response({"version": self.version, "snapshot": False, "changes": fresh})


class Billing:
    """Grants from balances, settles from events, and checks what billing would check."""

    def __init__(self) -> None:
        self.balances: dict[str, int] = {}
        self.granted: dict[str, tuple[str, int]] = {}
        self.kept: dict[str, int] = {}
        self.closed: set[str] = set()
        self.settled: dict[str, int] = {}
        self.answers: dict[str, Granted | Refused] = {}
        self.events: dict[str, UsageEvent] = {}
        self.recalls: list[str] = []
        self.lease_calls = 0
        self.lease_seconds = 900.0
        self.is_down = False

    def available(self, budget_id: str) -> int:
        """The balance, less the most that each lease may take in all."""
        leases = [(id_, n) for id_, (budget, n) in self.granted.items() if budget == budget_id]
        return self.balances.get(budget_id, 0) - sum(self.kept.get(id_, n) for id_, n in leases)

    async def lease(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=503)
        self.lease_calls += 1
        asked = decode(await request.read(), LeaseRequest)
        for back in asked.returns:
            self.kept[back.lease_id] = back.keep_nanos
            assert self.settled.get(back.lease_id, 0) <= back.keep_nanos
            if back.closed:
                self.closed.add(back.lease_id)
        answers = tuple(self._answer(ask) for ask in asked.asks)
        recalls, self.recalls = tuple(self.recalls), []
        return web.Response(body=encode(LeaseReply(answers, recalls)))

    def _answer(self, ask: Any) -> Granted | Refused:
        if ask.ask_id not in self.answers:
            self.answers[ask.ask_id] = self._decide(ask)
        return self.answers[ask.ask_id]

    def _decide(self, ask: Any) -> Granted | Refused:
        available = self.available(ask.budget_id)
        if available < ask.need_nanos:
            code = "credit_balance_exhausted"
            return Refused(ask.ask_id, ask.budget_id, code, recall_in_progress=False)
        granted = max(ask.need_nanos, min(ask.want_nanos, available // 2))
        lease_id = new_id()
        self.granted[lease_id] = (ask.budget_id, granted)
        expires_at = datetime.now(UTC) + timedelta(seconds=self.lease_seconds)
        return Granted(ask.ask_id, ask.budget_id, lease_id, granted, expires_at)

    async def usage(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=503)
        batch = decode(await request.read(), UsageBatch)
        accepted = 0
        for raw in batch.events:
            event = decode(raw, UsageEvent)
            if event.event_id not in self.events:
                accepted += 1
                self._book(event)
        duplicates = len(batch.events) - accepted
        return web.Response(body=encode(UsageReceipt(accepted, duplicates)))

    def _book(self, event: UsageEvent) -> None:
        self.events[event.event_id] = event
        for charge in event.charges:
            assert charge.lease_id not in self.closed
            settled = self.settled.get(charge.lease_id, 0) + charge.charged_nanos
            self.settled[charge.lease_id] = settled


class FakeControl:
    """All three behind one address."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.fleet = Feed()
        self.billing = Billing()
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeControl"]:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/internal/v1/feed", self.feed.answer)
        app.router.add_get("/replicas", self.fleet.answer)
        app.router.add_post("/internal/v1/leases", self.billing.lease)
        app.router.add_post("/internal/v1/usage-events", self.billing.usage)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        try:
            yield self
        finally:
            await runner.cleanup()
