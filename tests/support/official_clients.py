"""Both official clients of one customer, on a stack."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anthropic
import openai

from tests.support.stack import Stack


@dataclass
class Clients:
    """The clients, and the model they ask."""

    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic
    model: str


@asynccontextmanager
async def official_clients(stack: Stack) -> AsyncIterator[Clients]:
    """Yield clients that do not retry by themselves."""
    root = stack.api_base.removesuffix("/v1")
    async with (
        openai.AsyncOpenAI(
            base_url=stack.api_base, api_key=stack.api_key, max_retries=0
        ) as openais,
        anthropic.AsyncAnthropic(base_url=root, api_key=stack.api_key, max_retries=0) as anthropics,
    ):
        yield Clients(openais, anthropics, stack.model)
