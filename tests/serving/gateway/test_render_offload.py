"""Long answers that are told whole: the same bytes wherever they are made; beside the loop."""

import asyncio
import json
import time
from array import array
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.embedding_parser import EmbeddingParser
from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import TokenUsage
from serving.engine.response_parser import ResponseParser
from serving.gateway.cancel_scope import CancelScope
from serving.gateway.dialects.base import Renderer
from serving.gateway.dialects.openai.embeddings import EmbeddingsDialect
from serving.gateway.http.response import HttpResponse
from serving.gateway.relay import Relay
from serving.gateway.render_offload import (
    RenderedBody,
    RenderFailure,
    RenderJob,
    RenderOffload,
    RenderUsage,
    render,
)
from serving.offload.process import HEAD_BYTES, WorkerDied, pack, unpack
from serving.pool.slot_request import SlotRequest
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.loop_meter import KEPT, metered_loop
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = st.lists(st.lists(SINGLE, min_size=1, max_size=6), min_size=1, max_size=5)
EMBEDDINGS = EmbeddingsDialect()
PATH = "/v1/embeddings"
ID = "our-id"


def as_engines_say(vectors: list[list[float]], *, is_base64: bool = True) -> bytes:
    data = [
        {
            "index": index,
            "object": "embedding",
            "embedding": b64encode(array("f", numbers).tobytes()).decode()
            if is_base64
            else numbers,
        }
        for index, numbers in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    said = {"id": f"embd-{ID}", "object": "list", "model": "var_1", "data": data, "usage": usage}
    return json.dumps(said, separators=(",", ":")).encode()


def vectors_of(inputs: int, encoding: str) -> tuple[EmbeddingParser, Renderer]:
    fields = {"model": "demo-embed", "input": ["a"] * inputs, "encoding_format": encoding}
    asked = EMBEDDINGS.decode(json.dumps(fields).encode())
    job = EMBEDDINGS.inference(asked, body_bytes=100, model=catalog.embedder())
    return EmbeddingParser(inputs, ID), EMBEDDINGS.renderer(job, ID)


def read_here(reading: ResponseParser, rendering: Renderer, data: bytes, at: int) -> bytes:
    for part in (data[:at], data[at:]):
        rendering.render(reading.feed(part))
    reading.finish()
    return rendering.finish(reading.tokens)


def read_beside(
    reading: ResponseParser, rendering: Renderer, data: bytes, at: int
) -> tuple[RenderUsage | RenderFailure, bytes]:
    """As a process does it that is given what was read until then."""
    rendering.render(reading.feed(data[:at]))
    return render(unpack(pack(RenderJob(reading, rendering), 0)[HEAD_BYTES:]), data[at:])


@given(VECTORS, st.booleans(), st.sampled_from(["float", "base64"]), st.integers(0, 400), st.data())
def test_vectors_are_told_in_the_same_bytes_wherever_they_are_read(
    vectors: list[list[float]], is_base64: bool, encoding: str, at: int, data: st.DataObject
) -> None:
    said = as_engines_say(vectors, is_base64=is_base64)
    here = read_here(
        *vectors_of(len(vectors), encoding), said, data.draw(st.integers(0, len(said)))
    )
    reply, body = read_beside(*vectors_of(len(vectors), encoding), said, at)
    assert (reply, body) == (RenderUsage(TokenUsage(input=7)), here)
    told = [each["embedding"] for each in json.loads(body)["data"]]
    wanted = json.loads(as_engines_say(vectors, is_base64=encoding == "base64"))["data"]
    assert told == [each["embedding"] for each in wanted]


def test_what_nobody_waits_for_is_counted_and_not_made() -> None:
    reading, _ = vectors_of(1, "float")
    reply = render(RenderJob(reading, None), as_engines_say([[1.0]]))
    assert reply == (RenderUsage(TokenUsage(input=7)), b"")


@pytest.mark.parametrize(
    "said", [b"{}", as_engines_say([[1.0]]), as_engines_say([[1.0]] * 3), as_engines_say([])]
)
def test_what_is_no_answer_is_broken_there_too(said: bytes) -> None:
    reply, body = render(RenderJob(*vectors_of(2, "float")), said)
    assert isinstance(reply, RenderFailure)
    assert body == b""


INPUTS = 256
NUMBERS = [[(row * 31 + place) % 97 / 97 - 0.5 for place in range(1_024)] for row in range(INPUTS)]
LARGE = as_engines_say(NUMBERS)


class Said:
    """An engine's whole answer, as it comes off a socket."""

    def __init__(self, data: bytes, piece: int = 128 * 1024) -> None:
        self.pieces = [data[at : at + piece] for at in range(0, len(data), piece)]

    async def status(self) -> int:
        return 200

    async def read(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def read_nowait(self) -> bytes:
        return b""


@pytest.fixture
async def offload() -> AsyncIterator[RenderOffload]:
    made = RenderOffload()
    yield made
    await made.close()


HERE = 2**30
BESIDE = 32 * 1024


PAYING = SlotRequest("org_a")


async def relayed(
    offload: RenderOffload,
    said: bytes,
    encoding: str = "float",
    *,
    here: int = BESIDE,
    holder: SlotRequest = PAYING,
) -> Relay:
    interrupts = CancelScope(60.0)
    relay = Relay(
        *vectors_of(INPUTS, encoding),
        cast(HttpResponse, None),
        interrupts,
        holder=holder,
        render_offload=offload,
        inline_bytes_max=here,
        gap_seconds=60.0,
        observe_gaps=lambda gaps: None,
    )
    with interrupts:
        await relay.run(Said(said), lambda: None, lambda: None)
    return relay


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_a_relay_ends_alike_here_and_beside(encoding: str, offload: RenderOffload) -> None:
    here = await relayed(offload, LARGE, encoding, here=HERE)
    assert offload.pool._idle == []
    beside = await relayed(offload, LARGE, encoding)
    assert len(offload.pool._idle) == 1
    assert (beside.final_bytes, beside.tokens) == (here.final_bytes, here.tokens)
    assert beside.has_usage
    assert beside.first_token_at is not None


async def test_where_no_process_is_to_be_had_it_is_made_here(
    offload: RenderOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(organization_id: str, *, is_paying: bool) -> Any:
        raise WorkerDied

    monkeypatch.setattr(offload.pool, "process", died)
    made = await relayed(offload, LARGE)
    assert made.final_bytes == (await relayed(offload, LARGE, here=HERE)).final_bytes
    assert offload.unfinished == 1


async def test_all_that_never_paid_have_one_process_and_leave_the_other(
    offload: RenderOffload,
) -> None:
    async with offload.pool._turns.permit("new_1", is_paying=False):
        newcomer = SlotRequest("new_2", is_paying=False)
        waiting = asyncio.create_task(relayed(offload, LARGE, holder=newcomer))
        await relayed(offload, LARGE)
        assert not waiting.done()
    await waiting


async def test_a_long_answer_that_is_none_is_broken(offload: RenderOffload) -> None:
    with pytest.raises(InvalidEngineResponse, match="a vector for each input"):
        await relayed(offload, as_engines_say(NUMBERS[:-1]))
    assert offload.pool.lost_count == 0


async def test_a_long_answer_takes_little_of_the_loop(offload: RenderOffload) -> None:
    """It took all of what the vectors take. CPU of this thread, so that a busy machine does not
    blame the code; the best of several."""

    async def cpu_seconds(here: int) -> float:
        began = time.thread_time()
        await relayed(offload, LARGE, here=here)
        return time.thread_time() - began

    here = min([await cpu_seconds(HERE) for _ in range(KEPT)])
    await cpu_seconds(BESIDE)
    with metered_loop(but_this_task=False) as longest:
        beside = min([await cpu_seconds(BESIDE) for _ in range(KEPT)])
    assert beside < here / 2
    assert longest.repeated_seconds < 0.05, longest


@pytest.fixture
async def org(tmp_path: Any) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path) as running:
        await running.offer_embeddings()
        yield running


TEXTS = [f"text number {number}" for number in range(1_000)]


async def body_of(org: Stack, texts: list[str], encoding: str) -> bytes:
    asked = {"model": "demo-embed", "input": texts, "encoding_format": encoding}
    async with org.post(PATH, asked) as reply:
        assert reply.status == 200
        return await reply.read()


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_a_client_gets_the_same_of_many_texts_as_of_few(encoding: str, org: Stack) -> None:
    few = [
        json.loads(await body_of(org, TEXTS[start : start + 100], encoding))["data"]
        for start in range(0, len(TEXTS), 100)
    ]
    bench = org.gateway.render_offload.pool
    assert bench._idle == []
    body = await body_of(org, TEXTS, encoding)
    assert len(bench._idle) == 1
    wanted = [each["embedding"] for part in few for each in part]
    data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(wanted)]
    told = json.loads(body)
    usage = told["usage"]
    answer = {"object": "list", "data": data, "model": "demo-embed", "usage": usage}
    assert body == msgspec.json.encode(answer)
    await eventually(lambda: len(org.events) == 11)
    event = org.events[-1]
    assert event.input_tokens == usage["prompt_tokens"] == usage["total_tokens"] > 0
    assert sum(part.charged_nanos for part in event.charges) == 150 * event.input_tokens


async def test_who_leaves_while_it_is_made_pays_for_it(
    org: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    offload = org.gateway.render_offload
    asked, may_go_on = asyncio.Event(), asyncio.Event()
    finish_for_real = offload.finish

    async def slow(*given: Any) -> RenderedBody | None:
        asked.set()
        await may_go_on.wait()
        return await finish_for_real(*given)

    monkeypatch.setattr(offload, "finish", slow)
    monkeypatch.setattr("serving.gateway.attempt.LINGER_SECONDS", 0.05)
    async with RawClient(org.url) as client:
        body = {"model": "demo-embed", "input": TEXTS}
        await client.send(request(PATH, org.tenant.secret, body))
        async with asyncio.timeout(60):
            await asked.wait()
    lingering = org.gateway.disconnect_drain
    [attempts] = org.gateway.app.inference.running
    await eventually(lambda: attempts.cancel_scope.reason == "client_gone")
    assert lingering.total == 1
    assert org.events == []
    may_go_on.set()
    event = await org.one_event()
    assert event.outcome == "client_cancelled"
    assert sum(part.charged_nanos for part in event.charges) == 150 * event.input_tokens > 0
    assert (lingering.total, org.gateway.metrics.unmetered) == (0, 0)
