"""Answers of embeddings: however they are cut and worded, each vector comes whole and once."""

import base64
import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.ids import EventIdGenerator
from serving.engine.adapter import EMBEDDING_CAPABILITIES
from serving.engine.embedding_parser import EmbeddingParser, vector_of
from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineEvent, TokenUsage
from serving.engine.request import EngineRequest, write

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = st.lists(st.lists(SINGLE, min_size=1, max_size=6), min_size=1, max_size=5)


def packed(numbers: list[float]) -> str:
    return base64.b64encode(array("f", numbers).tobytes()).decode()


def item(index: int, numbers: list[float]) -> dict[str, Any]:
    return {"index": index, "object": "embedding", "embedding": packed(numbers)}


def answer(items: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
    """Return an answer as vLLM words it."""
    usage = {"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}
    head = {"id": "embd-our-id", "object": "list", "created": 1, "model": "var_1"}
    return head | {"data": items, "usage": usage | {"prompt_tokens_details": None}} | extra


def read(reading: EmbeddingParser, data: bytes, size: int = 10**6) -> list[list[float]]:
    events = [
        event for at in range(0, len(data), size) for event in reading.feed(data[at : at + size])
    ]
    assert not reading.has_usage
    reading.finish()
    return [vector_of(event).numbers() for event in events]


@given(VECTORS, st.integers(1, 80), st.booleans())
def test_vectors_survive_any_cutting(wanted: list[list[float]], size: int, is_spaced: bool) -> None:
    items = [item(index, numbers) for index, numbers in enumerate(wanted)]
    data = json.dumps(answer(items), separators=(", ", ": ") if is_spaced else (",", ":"))
    reading = EmbeddingParser(len(wanted), "our-id")
    assert read(reading, data.encode(), size) == wanted
    assert reading.tokens == TokenUsage(input=7)


@given(st.lists(SINGLE, min_size=1, max_size=20))
def test_text_and_base64_agree_whichever_an_engine_speaks(numbers: list[float]) -> None:
    spoken = EngineEvent(json.dumps({"index": 3, "embedding": numbers}).encode())
    coded = EngineEvent(json.dumps({"index": 3, "embedding": packed(numbers)}).encode())
    for event in (spoken, coded):
        vector = vector_of(event)
        assert vector.index == 3
        assert vector.numbers() == numbers
        assert vector.base64() == packed(numbers)


def test_another_order_of_keys_is_read_too() -> None:
    usage = {"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    items = [{"embedding": [1.0], "index": 0, "encoding_format": "float"}]
    data = json.dumps({"usage": usage, "model": "m", "data": items}).encode()
    reading = EmbeddingParser(1, "our-id")
    assert read(reading, data) == [[1.0]]
    assert reading.tokens == TokenUsage(input=4, cached_input=3)


@pytest.mark.parametrize(
    "said",
    [
        answer([item(0, [1.0])]),
        answer([item(0, [1.0])] * 3),
        answer([item(0, [1.0]), {"index": 1}]),
        answer([item(0, [1.0]) | {"meta": {}}, item(1, [1.0])]),
        answer([item(0, [1.0])] * 2, usage=None),
        answer([item(0, [1.0])] * 2, usage={"prompt_tokens": -1}),
        answer([item(0, [1.0])] * 2, id="embd-another"),
        {},
        [],
    ],
)
def test_what_is_no_answer_is_broken(said: Any) -> None:
    with pytest.raises(InvalidEngineResponse):
        read(EmbeddingParser(2, "our-id"), json.dumps(said, separators=(",", ":")).encode())


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_an_answer_that_breaks_off_is_broken(cut: int) -> None:
    data = json.dumps(answer([item(0, [1.0])])).encode()
    with pytest.raises(InvalidEngineResponse):
        read(EmbeddingParser(1), data[:-cut])


@pytest.mark.parametrize(
    "embedding", ["AAA", "not base64!", packed([float("nan")]), packed([1.0, float("inf")])]
)
def test_what_is_no_vector_is_broken(embedding: str) -> None:
    with pytest.raises(InvalidEngineResponse):
        vector_of(EngineEvent(json.dumps({"index": 0, "embedding": embedding}).encode())).numbers()


@pytest.mark.parametrize("raw", [b"{}", b'{"index":0}', b'{"index":"0","embedding":"AA"}', b"["])
def test_what_is_no_object_of_one_is_broken(raw: bytes) -> None:
    with pytest.raises(InvalidEngineResponse):
        vector_of(EngineEvent(raw))


def batch(texts: int) -> EngineRequest:
    fields = (json.dumps({"input": ["a penstock is"] * texts}).encode()[:-1],)
    return EngineRequest(
        operation="embeddings",
        fields=fields,
        is_streamed=False,
        may_call_tools=False,
        feature="plain",
        choices=0,
        prompts=texts,
        output_tokens_max=0,
    )


def due_ms(texts: int, arrived_ms: int) -> int:
    """When a batch is due that came at a moment."""
    request = write(
        batch(texts),
        served_name="var_1",
        capabilities=(*EMBEDDING_CAPABILITIES, "no_prefix_cache"),
        cache_salt="salt",
        request_id=EventIdGenerator(lambda: arrived_ms / 1_000)(),
    )
    body = json.loads(b"".join(request.body))
    assert set(body) == {"input", "model", "encoding_format", "priority"}
    assert (body["encoding_format"], request.is_streamed) == ("base64", False)
    return int(body["priority"])


def test_a_small_request_is_due_before_a_large_one_that_came_first_but_not_for_ever() -> None:
    now = 1_800_000_000_000
    large = due_ms(2_000, now)
    assert now == due_ms(1, now) < due_ms(32, now) < large
    assert due_ms(1, now + 100) < large < due_ms(1, now + 2_000)


def test_an_engine_without_priority_is_sent_none() -> None:
    request = write(batch(1), served_name="m", capabilities=(), cache_salt="salt", request_id="any")
    assert set(json.loads(b"".join(request.body))) == {"input", "model", "encoding_format"}
