"""Embeddings from the demo embedder by real vLLM, beside the model that talks, for the official
client: what the engine counted is what is told and billed."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import numpy as np
import openai
import pytest

from infra.demo_embedder.evaluate import Matrix, embedded, verdicts
from infra.demo_embedder.pairs import facts
from infra.local.config import DEMO_EMBEDDER_ID
from tests.fixtures.books import Books
from tests.fixtures.engine_counters import engine_tokens, is_at_work, settle
from tests.fixtures.stack import LOAD_SECONDS_MAX, Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

TEXTS = ["How do I revoke a key?", "Delete an API key", "What is a penstock?", "x " * 500]
RIGHT_MIN = 0.8
PRICE_NANOS = 20
"""Of a token."""


@pytest.fixture
def embedding_stack(stack: Stack) -> Stack:
    """The platform, once its second engine is ready too."""
    wait_until(
        lambda: len(stack.replicas()) == 2,
        seconds=LOAD_SECONDS_MAX,
        what="the embedder is ready",
    )
    return stack


@pytest.fixture
async def client(embedding_stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    stack = embedding_stack
    async with openai.AsyncOpenAI(
        base_url=stack.api_base, api_key=stack.api_key, max_retries=0
    ) as client:
        yield client


async def embed(client: openai.AsyncOpenAI, texts: list[str], **asked: object) -> Matrix:
    answer = await client.embeddings.create(model=DEMO_EMBEDDER_ID, input=texts, **asked)  # type: ignore[arg-type]
    assert [each.index for each in answer.data] == list(range(len(texts)))
    return np.array([each.embedding for each in answer.data], dtype=np.float32)


async def test_usage_is_what_the_engine_counted_and_what_is_billed(
    embedding_stack: Stack, client: openai.AsyncOpenAI
) -> None:
    books = Books(embedding_stack.database_url)
    counted, billed = settle(lambda: engine_tokens(embedding_stack.replicas())), books.tokens()
    expected = books.event_count() + 2
    texts = await client.embeddings.with_raw_response.create(model=DEMO_EMBEDDER_ID, input=TEXTS)
    told = texts.parse().usage.prompt_tokens
    assert int(texts.headers["x-penstock-cost-nanos"]) == told * PRICE_NANOS
    ids = await client.embeddings.create(model=DEMO_EMBEDDER_ID, input=[[5, 6, 7], [8, 9]])
    assert ids.usage.prompt_tokens == ids.usage.total_tokens == 5
    wait_until(lambda: books.event_count() >= expected, seconds=60, what="both are booked")
    counted = settle(lambda: engine_tokens(embedding_stack.replicas())) - counted
    billed = books.tokens() - billed
    assert counted["input"] == billed["input"] == told + 5
    assert counted["output"] == billed["output"] == 0


async def test_base64_and_floats_agree_and_batches_keep_their_order(
    client: openai.AsyncOpenAI,
) -> None:
    packed = await embed(client, TEXTS)  # the client asks for base64 by itself
    spoken = await embed(client, TEXTS, encoding_format="float")
    alone = np.concatenate([await embed(client, [text]) for text in TEXTS])
    assert packed.shape == (len(TEXTS), 256)
    assert np.allclose(np.linalg.norm(packed, axis=1), 1.0, atol=1e-3)
    for other in (spoken, alone):  # the engine rounds otherwise in other company
        assert np.allclose(packed, other, atol=2e-2)
    assert (packed @ alone.T).argmax(axis=1).tolist() == [0, 1, 2, 3]


async def test_a_vector_begins_with_shorter_ones(client: openai.AsyncOpenAI) -> None:
    whole, short = await embed(client, TEXTS), await embed(client, TEXTS, dimensions=64)
    begun = whole[:, :64] / np.linalg.norm(whole[:, :64], axis=1, keepdims=True)
    assert np.allclose(short, begun, atol=2e-2)
    with pytest.raises(openai.BadRequestError, match="vectors of this length") as caught:
        await embed(client, TEXTS, dimensions=100)
    assert caught.value.param == "dimensions"


def test_questions_it_never_saw_find_their_answers(embedding_stack: Stack) -> None:
    with openai.OpenAI(
        base_url=embedding_stack.api_base, api_key=embedding_stack.api_key
    ) as client:
        embed = partial(embedded, client, DEMO_EMBEDDER_ID, dimensions=256)
        found = verdicts(facts(), embed)
    right = [good for kind, good in found if kind == "new wording"]
    assert sum(right) >= RIGHT_MIN * len(right)


async def test_an_input_that_is_too_long_is_told_its_size(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(
        openai.BadRequestError, match="2,048 tokens at most in each input"
    ) as caught:
        await embed(client, ["short", "water " * 3_000])
    assert "at least 2,049 tokens long" in str(caught.value)


async def test_each_model_is_for_one_thing(
    embedding_stack: Stack, client: openai.AsyncOpenAI
) -> None:
    tasks = {
        each.id: (each.model_extra or {})["task"] for each in (await client.models.list()).data
    }
    assert tasks[embedding_stack.model] == "generate"
    assert tasks[DEMO_EMBEDDER_ID] == tasks[f"{DEMO_EMBEDDER_ID}:bf16"] == "embed"
    with pytest.raises(openai.NotFoundError, match="makes no embeddings"):
        await client.embeddings.create(model=embedding_stack.model, input="hi")


async def test_a_large_batch_leaves_room_for_a_small_one(
    embedding_stack: Stack, client: openai.AsyncOpenAI
) -> None:
    [embedder] = [each for each in embedding_stack.replicas() if each != embedding_stack.replica()]
    many = asyncio.create_task(embed(client, [f"{n} {TEXTS[0]}" for n in range(2_000)]))
    await asyncio.to_thread(
        wait_until,
        lambda: is_at_work(embedder),
        seconds=60,
        what="the engine works on the large batch",
        every_seconds=0.01,
    )
    await embed(client, ["a small one"])
    was_done = many.done()
    vectors = await many
    assert vectors.shape == (2_000, 256)
    assert not was_done
