"""Idempotency keys as a customer has them: the official clients, real vLLM, and the console's word
of what was charged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from tests.fixtures.books import Books
from tests.fixtures.replaying import turn_on
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.e2e

QUESTION = "What is Penstock?"
TOKENS = 12


@dataclass
class Customer:
    """Both official clients of one organization."""

    ids: dict[str, str]
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic
    model: str


@pytest.fixture
async def customer(stack: Stack) -> AsyncIterator[Customer]:
    """A customer whose organization takes idempotency keys."""
    ids = await asyncio.to_thread(stack.tenant, "owner@keys.example")
    await turn_on(stack, ids)
    async with clients_of(stack, ids) as customer:
        yield customer


@asynccontextmanager
async def clients_of(stack: Stack, ids: dict[str, str]) -> AsyncIterator[Customer]:
    root, key = stack.api_base.removesuffix("/v1"), ids["api_key"]
    async with (
        openai.AsyncOpenAI(base_url=stack.api_base, api_key=key, max_retries=0) as openais,
        anthropic.AsyncAnthropic(base_url=root, api_key=key, max_retries=0) as anthropics,
    ):
        yield Customer(ids, openais, anthropics, stack.model)


def kinds(of: Customer) -> dict[str, Any]:
    """Every way to ask, as a raw call that takes headers."""
    turns = [{"role": "user", "content": QUESTION}]
    openais, anthropics = of.openai, of.anthropic
    chat = {"model": of.model, "messages": turns, "max_tokens": TOKENS}
    return {
        "chat": (openais.chat.completions.with_raw_response.create, chat),
        "completions": (
            openais.completions.with_raw_response.create,
            {"model": of.model, "prompt": QUESTION, "max_tokens": TOKENS},
        ),
        "responses": (
            openais.responses.with_raw_response.create,
            {"model": of.model, "input": QUESTION, "max_output_tokens": 16},
        ),
        "messages": (anthropics.messages.with_raw_response.create, chat),
    }


async def ask(of: Customer, kind: str, key: str, *, stream: bool) -> tuple[bytes, str | None]:
    """Ask; return the bytes, and whether they are told again."""
    call, body = kinds(of)[kind]
    raw = await call(**body, stream=stream, extra_headers={"Idempotency-Key": key})
    reply = raw.http_response
    return await reply.aread(), reply.headers.get("idempotent-replayed")


@pytest.mark.full
async def test_every_language_is_told_the_same_and_charged_once(
    stack: Stack, customer: Customer
) -> None:
    count = "SELECT count(*) AS n FROM metering_usage_event WHERE organization_id = %s"

    def booked() -> int:
        events: int = Books(stack.database_url).rows(count, customer.ids["organization_id"])[0]["n"]
        return events

    wait_until(stack.journal_is_empty, seconds=60, what="all is shipped")
    before = booked()
    keys = [(kind, stream) for kind in kinds(customer) for stream in (False, True)]
    for kind, stream in keys:
        first = await ask(customer, kind, f"{kind}-{stream}", stream=stream)
        again = await ask(customer, kind, f"{kind}-{stream}", stream=stream)
        assert first[0] == again[0]
        assert (first[1], again[1]) == (None, "true")
    wait_until(lambda: booked() == before + len(keys), seconds=60, what="one event of each key")


async def test_where_it_is_off_a_clients_own_error_names_the_header(stack: Stack) -> None:
    ids = await asyncio.to_thread(stack.tenant)
    async with clients_of(stack, ids) as customer:
        with pytest.raises(openai.BadRequestError, match="Idempotency-Key") as refused:
            await ask(customer, "chat", "order-17", stream=False)
        assert refused.value.code == "idempotency_not_enabled"
        with pytest.raises(anthropic.BadRequestError, match="Idempotency-Key"):
            await ask(customer, "messages", "order-17", stream=False)


async def test_another_body_is_a_conflict_to_the_clients(customer: Customer) -> None:
    await ask(customer, "chat", "order-17", stream=False)
    with pytest.raises(openai.ConflictError, match="another request"):
        await ask(customer, "chat", "order-17", stream=True)
    with pytest.raises(anthropic.ConflictError, match="another request"):
        await ask(customer, "messages", "order-17", stream=False)
