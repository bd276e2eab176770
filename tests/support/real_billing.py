"""Billing itself behind the gateways' calls, in a thread each, as a web server has it."""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from aiohttp import web
from django.db import connections

from billing.credit.services.leases import answer
from billing.metering.ingest import ingest
from control.prices.models import Price
from control.prices.records import price_news
from control.publish.services import News
from control.records import news_of
from serving.contract.codec import decode, encode
from serving.contract.key import digest, make_secret
from serving.contract.lease import LeaseReply, LeaseRequest
from serving.contract.usage import UsageBatch, UsageReceipt
from tests.support import catalog
from tests.support.fake_control import FakeControl
from tests.support.usage import Customer, give_credit, make_customer, make_price

Result = TypeVar("Result")
THREADS = 8


class RealBilling:
    """Stands where `FakeControl` has its fake billing."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS)

    async def answer_leases(self, request: web.Request) -> web.Response:
        asked = decode(await request.read(), LeaseRequest)
        return web.Response(body=encode(await self.within(lambda: _lease(asked))))

    async def answer_usage(self, request: web.Request) -> web.Response:
        batch = decode(await request.read(), UsageBatch)
        return web.Response(body=encode(await self.within(lambda: _book(batch))))

    async def within(self, work: Callable[[], Result]) -> Result:
        """Do something with the database, off the event loop."""

        def job() -> Result:
            try:
                return work()
            finally:
                connections.close_all()

        return await asyncio.get_running_loop().run_in_executor(self.threads, job)


def _lease(asked: LeaseRequest) -> LeaseReply:
    return answer(asked, now=datetime.now(UTC))


def _book(batch: UsageBatch) -> UsageReceipt:
    return ingest(batch, now=datetime.now(UTC))


def sell(**nanos: int) -> tuple[Price, list[News]]:
    """Return a price for a new model, and what to publish of it."""
    price = make_price(at=datetime.now(UTC), **nanos)
    price.book.refresh_from_db()
    variant_id = price.variant_id
    deployment = msgspec.structs.replace(catalog.deployment(), variant_id=variant_id)
    return price, [
        price_news(price),
        News("model", variant_id, catalog.model(variant_id)),
        News("deployment", deployment.deployment_id, deployment),
    ]


def enter(name: str, *, credit_nanos: int) -> tuple[Customer, str, list[News]]:
    """Return a new customer with credit, the secret of its key, and what to publish of both."""
    customer, secret = make_customer(name), make_secret(secrets.choice)
    customer.key.digest = digest(secret, catalog.PEPPER.encode())
    customer.key.save(update_fields=["digest"])
    give_credit(customer, credit_nanos, now=datetime.now(UTC))
    news = [
        *news_of("organization", [customer.organization.id]),
        *news_of("project", [customer.project.id]),
        *news_of("api_key", [customer.key.id]),
    ]
    return customer, secret, news


def publish(control: FakeControl, news: list[News]) -> None:
    """Publish on the event loop of the control."""
    for one in news:
        control.feed.publish(one.kind, one.record_id, one.record)
