"""Large bodies become the same jobs, and the same refusals, as small ones; elsewhere."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from serving.contract.records import ModelRecord
from serving.gateway import parse_offload
from serving.gateway.dialects.base import Dialect, InferenceRequest
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.completions import CompletionsDialect
from serving.gateway.dialects.openai.embeddings import EmbeddingsDialect
from serving.gateway.errors import (
    ApiError,
    BadRequest,
    ModelNotFound,
    PayloadTooLarge,
    ServiceUnavailable,
    TooManyQueuedRequests,
)
from serving.gateway.parse_offload import HERE_BYTES_MAX, ParseOffload, body_bytes_max
from serving.pool.slot_request import SlotRequest
from tests.fixtures.catalog import embedder, model
from tests.fixtures.loop_meter import KEPT, metered_loop

CHAT, COMPLETIONS, EMBEDDINGS = ChatDialect(), CompletionsDialect(), EmbeddingsDialect()
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": OBJECT}}


def large_model() -> ModelRecord:
    return msgspec.structs.replace(model(), context_tokens=10**6, vocabulary_size=10**5)


def find(name: str) -> ModelRecord:
    if name == "demo-embed":
        return embedder()
    if name != "demo":
        raise ModelNotFound(name)
    return large_model()


def chat(**fields: Any) -> bytes:
    said = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "demo", "messages": said} | fields).encode()


def embeddings(given: list[str]) -> bytes:
    return json.dumps({"model": "demo-embed", "input": given}).encode()


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def pieces(data: bytes, size: int = 50_000) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.fixture
async def offload() -> AsyncIterator[ParseOffload]:
    made = ParseOffload()
    yield made
    await made.close()


LARGE = "word " * 10_000
BODIES: dict[str, tuple[Dialect, bytes]] = {
    "a long text": (CHAT, chat(messages=said(LARGE), user="me", stream=True)),
    "many tools": (CHAT, chat(tools=[TOOL] * 100, tool_choice="required", n=2)),
    "a small schema": (CHAT, chat(messages=said("a" * 2_000), tools=[TOOL])),
    "token ids": (COMPLETIONS, json.dumps({"model": "demo", "prompt": [7] * 40_000}).encode()),
    "texts to embed": (EMBEDDINGS, embeddings([LARGE] * 2)),
    "too many to embed": (EMBEDDINGS, embeddings(["a"] * 30_000)),
    "a field that is none": (CHAT, chat(messages=said(LARGE), nonsense=1)),
    "no JSON": (CHAT, chat(messages=said(LARGE))[:-1]),
    "too many tokens": (CHAT, chat(messages=said(LARGE), max_tokens=10**6)),
    "a bad schema": (CHAT, chat(messages=said(LARGE), tools=[TOOL | {"function": {"name": "f", "parameters": {"type": "x"}}}])),  # noqa: E501
    "another model": (CHAT, chat(messages=said(LARGE), model="other")),
}  # fmt: skip


async def outcome(of: ParseOffload, dialect: Dialect, data: bytes) -> Any:
    try:
        job = await of.parse(dialect, pieces(data), SlotRequest("org_a"), find)
    except ApiError as error:
        return type(error), error.message, error.code, error.param
    return comparable(job)


def comparable(job: InferenceRequest) -> dict[str, Any]:
    named = {
        name: getattr(job, name) for name in InferenceRequest.__slots__ if name != "engine_request"
    }
    work = {name: getattr(job.engine_request, name) for name in type(job.engine_request).__slots__}
    return named | work | {"fields": json.loads(b"".join(job.engine_request.fields) + b"}")}


@pytest.mark.parametrize("name", BODIES)
async def test_a_job_is_the_same_wherever_it_was_made(
    name: str, offload: ParseOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect, data = BODIES[name]
    beside = await outcome(offload, dialect, data)
    assert offload.pool.lost_count == 0
    assert len(offload.pool._idle) == 1
    monkeypatch.setattr(parse_offload, "HERE_BYTES_MAX", 2**30)
    monkeypatch.setattr(parse_offload, "SMALL_BODY_BYTES", 2**30)
    assert await outcome(offload, dialect, data) == beside


async def test_small_bodies_start_no_process(offload: ParseOffload) -> None:
    await offload.parse(CHAT, [chat()], SlotRequest("org_a"), find)
    await offload.parse(CHAT, [chat(tools=[TOOL])], SlotRequest("org_a"), find)
    long = chat(messages=said("a" * (HERE_BYTES_MAX - 100)))
    await offload.parse(CHAT, pieces(long), SlotRequest("org_a"), find)
    assert offload.pool._idle == []


async def test_fifteen_megabytes_never_hold_the_loop_for_long(
    offload: ParseOffload,
) -> None:
    """Copied at once they took 60 ms; a quarter of that would already fail."""
    data = pieces(chat(messages=said("a " * 7_500_000)), 65_536)
    await offload.parse(CHAT, [chat(messages=said(LARGE))], SlotRequest("org_a"), find)
    with metered_loop(but_this_task=False) as longest:
        for _ in range(KEPT):
            job = await offload.parse(CHAT, data, SlotRequest("org_a"), find)
            assert sum(map(len, job.engine_request.fields)) > 15_000_000
    assert longest.repeated_seconds < 0.015, longest


def test_a_body_may_be_as_large_as_its_model_reads() -> None:
    assert body_bytes_max(512) == 1024 * 1024 + 8 * 1024
    assert body_bytes_max(10**6) == 16 * 1024 * 1024


async def test_a_body_too_large_for_its_model_is_refused(offload: ParseOffload) -> None:
    def find_small(name: str) -> ModelRecord:
        return model()

    data = pieces(chat(messages=said("a" * 1_100_000)))
    with pytest.raises(PayloadTooLarge):
        await offload.parse(CHAT, data, SlotRequest("org_a"), find_small)


async def test_what_takes_too_long_is_refused_and_the_next_is_served(
    offload: ParseOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload.pool, "_seconds_max", 0.001)
    with pytest.raises(BadRequest) as caught:
        await offload.parse(
            CHAT, pieces(chat(messages=said(LARGE * 50))), SlotRequest("org_a"), find
        )
    assert caught.value.code == "request_too_complex"
    monkeypatch.setattr(offload.pool, "_seconds_max", 60.0)
    await offload.parse(CHAT, pieces(chat(messages=said(LARGE))), SlotRequest("org_b"), find)


async def test_many_large_bodies_of_one_at_once_are_read(offload: ParseOffload) -> None:
    data = pieces(chat(messages=said(LARGE)))
    asked = (offload.parse(CHAT, data, SlotRequest("org_a"), find) for _ in range(60))
    assert len(await asyncio.gather(*asked)) == 60
    assert (offload.rejected, offload.rejected_own) == (0, 0)


async def test_who_fills_the_line_is_told_so_and_others_that_we_are_busy(
    offload: ParseOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = offload.pool._turns
    monkeypatch.setattr(turns, "_waiting_of_one_max", 1)
    data = pieces(chat(messages=said(LARGE)))
    async with turns.permit("org_a"):
        monkeypatch.setattr(turns, "_waiting_max", 0)
        with pytest.raises(TooManyQueuedRequests, match="your organization's large requests"):
            await offload.parse(CHAT, data, SlotRequest("org_a"), find)
        with pytest.raises(ServiceUnavailable):
            await offload.parse(CHAT, data, SlotRequest("org_b"), find)
    assert (offload.rejected, offload.rejected_own) == (1, 1)


async def test_all_that_never_paid_have_one_process_and_leave_the_other(
    offload: ParseOffload,
) -> None:
    data = pieces(chat(messages=said(LARGE)))
    async with offload.pool._turns.permit("new_1", is_paying=False):
        newcomer = SlotRequest("new_2", is_paying=False)
        waiting = asyncio.create_task(offload.parse(CHAT, data, newcomer, find))
        await offload.parse(CHAT, data, SlotRequest("org_a"), find)
        assert not waiting.done()
    await waiting
