"""Embeddings: what may be asked, what comes back, and what it costs whoever leaves."""

import base64
import json
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.price import charge
from serving.contract.prompt import PromptBound
from serving.engine.events import TokenUsage
from serving.engine.simulated.embedding import vector_of
from serving.engine.simulated.settings import Fault
from serving.engine.simulated.tokens import prompt_of_ids, prompt_of_text
from serving.gateway import attempt
from serving.gateway.dialects.openai.embeddings import (
    INPUTS_MAX,
    NUMBERS_MAX,
    EmbeddingsDialect,
)
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually


@pytest.fixture
async def stack(stack: Stack) -> Stack:
    """A model of each kind."""
    await stack.offer_embeddings()
    return stack


EMBEDDINGS = EmbeddingsDialect()
PATH = "/v1/embeddings"
TEXTS = ["A penstock is", "a gated, metered pipe", "that feeds a turbine."]


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Stack]:
    """An engine that is paced, so that it works for a while."""
    async with running_stack(tmp_path, prefill_tokens_per_second=1_000) as running:
        await running.offer_embeddings()
        yield running


def vectors(prompts: list[bytes], dimensions: int = 64) -> list[list[float]]:
    """What the engine makes of prompts."""
    return [vector_of(prompt, dimensions, seed=0).tolist() for prompt in prompts]


async def ask(stack: Stack, **fields: Any) -> tuple[int, dict[str, Any]]:
    async with stack.post(PATH, {"model": "demo-embed", "input": "hi"} | fields) as reply:
        return reply.status, await reply.json()


async def refused(stack: Stack, **fields: Any) -> tuple[str, str, str]:
    """The field, the code and the words of a refusal."""
    status, body = await ask(stack, **fields)
    assert status == 400
    error = body["error"]
    return error["param"], error["code"], error["message"]


@pytest.mark.parametrize("encoding", ["float", "base64", None])
async def test_the_official_client_gets_the_engines_vectors_in_order(
    stack: Stack, encoding: Any
) -> None:
    asked = {} if encoding is None else {"encoding_format": encoding}
    answer = await stack.client().embeddings.create(model="demo-embed", input=TEXTS, **asked)
    wanted = vectors([prompt_of_text(text) for text in TEXTS])
    got = [each.embedding for each in answer.data]
    if encoding == "base64":
        got = [array("f", base64.b64decode(str(each))).tolist() for each in got]
    assert got == wanted
    assert [each.index for each in answer.data] == [0, 1, 2]
    assert (answer.object, answer.model) == ("list", "demo-embed")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 4 + 6 + 6
    event = await stack.one_event()
    assert (event.endpoint, event.model_id) == ("embeddings", "mdl_demo")
    assert (event.input_tokens, event.output_tokens) == (16, 0)
    assert sum(part.charged_nanos for part in event.charges) == 16 * 150


@pytest.mark.parametrize(
    ("asked", "prompts"),
    [
        ("one text", [prompt_of_text("one text")]),
        (["a", "b"], [prompt_of_text("a"), prompt_of_text("b")]),
        ([1, 2, 3], [prompt_of_ids([1, 2, 3])]),
        ([[1, 2, 3], [4]], [prompt_of_ids([1, 2, 3]), prompt_of_ids([4])]),
    ],
    ids=["text", "texts", "ids", "lists of ids"],
)
async def test_every_kind_of_input_is_taken(stack: Stack, asked: Any, prompts: list[bytes]) -> None:
    status, body = await ask(stack, input=asked, user="me")
    assert status == 200
    assert list(body) == ["object", "data", "model", "usage"]
    assert [list(each) for each in body["data"]] == [["object", "index", "embedding"]] * len(
        prompts
    )
    assert [each["embedding"] for each in body["data"]] == vectors(prompts)
    assert body["usage"] == {
        "prompt_tokens": sum(map(len, prompts)) // 4,
        "total_tokens": sum(map(len, prompts)) // 4,
    }


async def test_shorter_vectors_are_the_engines_own(stack: Stack) -> None:
    _, body = await ask(stack, dimensions=16)
    assert [each["embedding"] for each in body["data"]] == vectors([prompt_of_text("hi")], 16)


async def test_dimensions_are_refused_where_no_engine_can(stack: Stack) -> None:
    [replica] = stack.gateway.directory.pools["dep_var_embed"].replicas.values()
    stack.control.fleet.publish(
        "replica", "rep_99", catalog.replica(replica.record.url, 99, "var_embed", features=())
    )
    await eventually(lambda: "dimensions" not in replica.record.capabilities)
    param, code, words = await refused(stack, dimensions=16)
    assert (param, code) == ("dimensions", "unsupported_value")
    assert "leave out 'dimensions'" in words


async def test_dimensions_that_the_engine_minds_are_refused_by_name(stack: Stack) -> None:
    stack.engines[0].settings = stack.engines[0].settings.__class__(
        models=("var_demo", "var_embed"), dimensions=32
    )
    param, code, _ = await refused(stack, dimensions=64)
    assert (param, code) == ("dimensions", "unsupported_value")
    assert (await stack.one_event()).outcome == "refused_by_engine"


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no text": ({"input": ""}, "input", "invalid_value", "at least one character"),
    "no inputs": ({"input": []}, "input", "invalid_value", "a list of 1 to"),
    "an empty one": ({"input": ["a", ""]}, "input[1]", "invalid_value", "at least one character"),
    "an empty list": ({"input": [[1], []]}, "input[1]", "invalid_value", "a list of 1 to"),
    "of two kinds": ({"input": ["a", 1]}, "input", "invalid_value", "all texts"),
    "an id too large": ({"input": [1_024]}, "input", "invalid_value", "0 to 1023"),
    "an id below 0": ({"input": [-1]}, "input[0]", "invalid_value", "an integer from 0"),
    "too many": ({"input": ["a"] * 2_049}, "input", "invalid_value", "at most 2,048"),
    "too long": ({"input": "a" * 3_000}, "input", "context_length_exceeded", "at least 513"),
    "too many ids": (
        {"input": [[1], [1] * 600]}, "input", "context_length_exceeded", "input[1] is 600"
    ),
    "dimensions": ({"dimensions": 65}, "dimensions", "invalid_value", "at most 64"),
    "no dimensions": ({"dimensions": 0}, "dimensions", "invalid_value", "an integer from 1"),
    "a format": ({"encoding_format": "hex"}, "encoding_format", "invalid_value", "hex"),
    "a stream": ({"stream": True}, "stream", "unknown_parameter", "stream"),
    "an engine's own": ({"truncate_prompt_tokens": 1}, "truncate_prompt_tokens", "unknown_parameter", "truncate"),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_wrong_is_refused_by_its_field(stack: Stack, name: str) -> None:
    asked, param, code, words = REFUSED[name]
    assert (await refused(stack, **asked))[:2] == (param, code)
    assert words in (await refused(stack, **asked))[2]
    assert stack.gateway.lease_manager.held_nanos() == 0


async def test_a_context_that_is_exceeded_says_the_numbers(stack: Stack) -> None:
    with pytest.raises(openai.BadRequestError, match="512 tokens at most in each input") as caught:
        await stack.client().embeddings.create(model="demo-embed", input=[[7] * 513])
    assert caught.value.code == "context_length_exceeded"
    assert "input[0] is 513 tokens long" in str(caught.value)


async def test_a_model_is_for_one_thing_and_says_so(stack: Stack) -> None:
    client = stack.client()
    with pytest.raises(openai.NotFoundError, match="makes no embeddings") as caught:
        await client.embeddings.create(model="demo", input="hi")
    assert (caught.value.code, caught.value.param) == ("model_not_supported", "model")
    with pytest.raises(openai.NotFoundError, match="use it at /v1/embeddings"):
        await client.chat.completions.create(model="demo-embed", messages=MESSAGES)  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError, match="use it at /v1/embeddings"):
        await client.completions.create(model="demo-embed:bf16", prompt="hi")
    with pytest.raises(openai.NotFoundError, match="use it at /v1/embeddings"):
        await client.responses.create(model="demo-embed", input="hi")
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        body = {"model": "demo-embed", "messages": MESSAGES}
        sent = body if path.endswith("tokens") else body | {"max_tokens": 1}
        async with stack.post(path, sent) as reply:
            told = await reply.json()
        assert (reply.status, told["error"]["type"]) == (404, "not_found_error")
    listed = {each.id: each.model_extra for each in (await client.models.list()).data}
    assert listed["demo"] == {"task": "generate"}
    assert listed["demo-embed"] == listed["demo-embed:bf16"] == {"task": "embed"}
    assert await stack.booked() == []


async def test_the_largest_batch_comes_back_whole(stack: Stack) -> None:
    dimensions = NUMBERS_MAX["float"] // INPUTS_MAX
    stack.engines[0].settings = stack.engines[0].settings.__class__(
        models=("var_demo", "var_embed"), dimensions=dimensions
    )
    model = catalog.embedder(dimensions=dimensions)
    stack.control.feed.publish("model", "var_embed", model)
    version = stack.control.feed.version
    await eventually(lambda: stack.gateway.directory.mirror.version == version)
    texts = [f"text number {number}" for number in range(INPUTS_MAX)]
    status, body = await ask(stack, input=texts)
    assert status == 200
    assert len(body["data"]) == INPUTS_MAX
    assert body["data"][-1]["embedding"] == vectors([prompt_of_text(texts[-1])], dimensions)[0]
    twice = catalog.embedder(dimensions=2 * dimensions)
    stack.control.feed.publish("model", "var_embed", twice)
    version = stack.control.feed.version
    await eventually(lambda: stack.gateway.directory.mirror.version == version)
    assert "at most 1,024" in (await refused(stack, input=texts))[2]


async def leave_early(stack: Stack) -> None:
    """Ask an engine that makes no progress for now, and leave."""
    engine = stack.engines[0].engine
    engine.freeze(True)
    async with RawClient(stack.url) as client:
        asked = {"model": "demo-embed", "input": TEXTS}
        await client.send(request(PATH, stack.tenant.secret, asked))
        await eventually(lambda: len(engine.running) == 1)


async def must_be_idle(stack: Stack) -> None:
    await eventually(lambda: stack.engines[0].engine.slots_used == 0)
    await eventually(lambda: stack.gateway.lease_manager.held_nanos() == 0)
    await eventually(lambda: stack.gateway.app.in_flight == 0)
    assert stack.gateway.disconnect_drain.total == 0


async def test_who_leaves_pays_for_what_was_read_to_the_end(slow: Stack) -> None:
    await leave_early(slow)
    await eventually(lambda: slow.gateway.disconnect_drain.total == 1)
    slow.engines[0].engine.freeze(False)
    event = await slow.one_event()
    assert (event.outcome, event.input_tokens, event.output_tokens) == ("client_cancelled", 16, 0)
    assert sum(part.charged_nanos for part in event.charges) == 16 * 150
    assert slow.gateway.metrics.unmetered == 0
    await must_be_idle(slow)


async def test_an_engine_that_takes_too_long_is_let_go_and_that_is_counted(
    slow: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "LINGER_SECONDS", 0.05)
    await leave_early(slow)
    event = await slow.one_event()
    assert (event.outcome, event.input_tokens, event.charges) == ("client_cancelled", 0, ())
    assert slow.gateway.metrics.unmetered == 1
    assert slow.engines[0].engine.finished["abort"] == 1
    await must_be_idle(slow)


@pytest.mark.parametrize("kind", ["die", "error_chunk", "reset"])
async def test_an_engine_that_breaks_is_waived(stack: Stack, kind: Any) -> None:
    stack.engines[0].script.add(Fault(kind, times=2))
    status, body = await ask(stack)
    assert (status, body["error"]["code"]) == (503, "model_unavailable")
    event = await stack.one_event()
    assert (event.outcome, event.charges) == ("engine_failed", ())
    await must_be_idle(stack)


async def test_one_failure_is_tried_again(stack: Stack) -> None:
    stack.engines[0].script.add(Fault("reset"))
    assert (await ask(stack))[0] == 200
    assert [event.outcome for event in stack.events or [await stack.one_event()]] == ["completed"]


async def test_a_body_beyond_what_a_batch_may_be_is_refused(stack: Stack) -> None:
    async with stack.post(
        PATH, json.dumps({"model": "demo-embed", "input": "a" * 6 * 2**20}).encode()
    ) as reply:
        assert reply.status == 413


TEXT = st.text(min_size=1, max_size=40)
IDS = st.lists(st.integers(0, 1_023), min_size=1, max_size=40)


@given(TEXT | IDS | st.lists(TEXT, min_size=1, max_size=9) | st.lists(IDS, min_size=1, max_size=9))
def test_what_is_held_covers_whatever_it_takes_and_no_engine_bills_more(asked: Any) -> None:
    body = {"model": "demo-embed", "input": asked}
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    model, price = catalog.embedder(), catalog.price("var_embed")
    job = EMBEDDINGS.inference(EMBEDDINGS.decode(data), body_bytes=len(data), model=model)
    several = isinstance(asked, list) and not isinstance(asked[0], int)
    inputs = asked if several else [asked]
    assert job.engine_request.prompts == len(inputs)
    # A text has no more tokens than bytes, but for the marks that a tokenizer adds.
    sizes = [len(each.encode()) + 2 if isinstance(each, str) else len(each) for each in inputs]
    taken = TokenUsage(input=sum(sizes))
    most = job.input_tokens_max(PromptBound(growth=1))
    assert job.bounded_usage(taken, most) is taken
    due = charge(price, input_tokens=taken.input, cached_input_tokens=0, output_tokens=0)
    assert due.total_nanos <= job.worst_case_nanos((price,), most)
    billed = job.bounded_usage(TokenUsage(input=10**8, output=10**8), most)
    assert (billed.output, billed.input) <= (0, 512 * len(inputs))
    told = json.loads(b"".join(job.engine_request.fields) + b"}")
    assert told == {"input": json.loads(data)["input"]}
