"""Done once, counted once: what real vLLM counted is what the ledger booked."""

import asyncio
import random

import openai
import pytest

from tests.support.books import Books
from tests.support.engine_counters import EngineCounters
from tests.support.load import wait_until

pytestmark = pytest.mark.house

REQUESTS = 200
STEP_TOKENS = 1
"""An engine step makes one token per sequence: what may lie between an abort and its count."""


async def whole(client: openai.AsyncOpenAI, model: str, rng: random.Random) -> None:
    answer = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"Count for me: {rng.randrange(10_000)}"}],
        max_tokens=rng.randrange(1, 40),
        n=rng.choice([1, 1, 2]),
    )
    assert answer.usage.completion_tokens > 0


async def streamed(client: openai.AsyncOpenAI, model: str, rng: random.Random) -> None:
    chunks = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"What is Penstock? {rng.randrange(10_000)}"}],
        max_tokens=rng.randrange(1, 40),
        stream=True,
        stream_options={"include_usage": rng.random() < 0.5},
    )
    assert [chunk async for chunk in chunks]


async def hung_up(client: openai.AsyncOpenAI, model: str, rng: random.Random) -> None:
    chunks = await client.completions.create(
        model=model,
        prompt=f"Penstock {rng.randrange(10_000)}",
        max_tokens=400,
        extra_body={"ignore_eos": True},
        stream=True,
    )
    for _ in range(rng.randrange(1, 30)):
        await anext(chunks)
    await chunks.close()


async def refused(client: openai.AsyncOpenAI, model: str, rng: random.Random) -> None:
    wrong = rng.choice([{"model": "nobody"}, {"temperature": 9}, {"max_tokens": -1}])
    asked = {"model": model, "messages": [{"role": "user", "content": "hi"}], **wrong}
    with pytest.raises(openai.APIStatusError):
        await client.chat.completions.create(**asked)


async def mixed(client: openai.AsyncOpenAI, model: str) -> dict[str, int]:
    """Send 200 requests of four kinds, 12 at a time; return how many of each kind."""
    rng, gate = random.Random(7), asyncio.Semaphore(12)
    kinds = rng.choices([whole, streamed, hung_up, refused], weights=[30, 40, 20, 10], k=REQUESTS)

    async def send(kind, seed: int) -> None:
        async with gate:
            await kind(client, model, random.Random(seed))

    await asyncio.gather(*(send(kind, seed) for seed, kind in enumerate(kinds)))
    return {kind.__name__: kinds.count(kind) for kind in (whole, streamed, hung_up, refused)}


async def test_billed_tokens_are_what_vllm_counted(stack) -> None:
    books, engine = Books(stack.database_url), EngineCounters(stack)
    client = openai.AsyncOpenAI(base_url=stack.api_base, api_key=stack.api_key, max_retries=0)
    booked_before, counted_before = await asyncio.to_thread(books.event_count), engine.settled()
    tokens_before = books.tokens_all()
    sent = await mixed(client, stack.model)
    expected = booked_before + REQUESTS - sent["refused"]
    wait_until(
        lambda: books.event_count() >= expected, timeout_seconds=30, what="every event is booked"
    )

    assert books.event_count() == expected
    counted, billed = engine.settled() - counted_before, books.tokens_all() - tokens_before
    assert billed["input"] == counted["input"]
    slack = sent["hung_up"] * STEP_TOKENS
    assert counted["output"] - slack <= billed["output"] <= counted["output"]
    assert books.ledger_sum_nanos() == 0
    assert stack.penstock("check-integrity").returncode == 0
