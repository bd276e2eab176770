"""Bytes of a stream: however they are cut, events come out whole, without usage, under our name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.heading import Heading
from serving.gateway.sse import (
    EVENT_BYTES_MAX,
    BrokenStream,
    Splitter,
    choice_index,
    cut_usage,
    read_usage,
)

TEXTS = st.text(max_size=40) | st.sampled_from([',"usage":{', '"usage"', "}}", '{"id":"', "\n\n"])


def chunk(text: str, usage: dict | None = None, **extra: object) -> bytes:
    """Return a chunk as vLLM writes it."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body: dict[str, object] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "var_demo",
        "choices": [choice],
    }
    if usage is not None:
        body["usage"] = usage
    return b"data: " + json.dumps(body | extra, separators=(",", ":")).encode()


USAGE = {"prompt_tokens": 7, "total_tokens": 9, "completion_tokens": 2}


@given(st.lists(TEXTS, max_size=8), st.integers(1, 60))
def test_events_survive_any_cutting(texts: list[str], size: int) -> None:
    events = [chunk(text) for text in texts]
    stream = b"".join(event + b"\n\n" for event in events)
    splitter = Splitter()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [event for piece in pieces for event in splitter.feed(piece)] == events


@given(TEXTS, st.booleans(), st.booleans())
def test_usage_is_cut_and_nothing_else_is_touched(text: str, nested: bool, late: bool) -> None:
    usage = USAGE | ({"prompt_tokens_details": {"cached_tokens": 3}} if nested else {})
    extra = {"prompt_token_ids": None} if late else {}
    rest, cut = cut_usage(chunk(text, usage, **extra))
    assert json.loads(rest[6:]) == json.loads(chunk(text, **extra)[6:])
    assert cut is not None
    assert json.loads(cut) == usage
    assert read_usage(cut).completion_tokens == 2


@given(TEXTS)
def test_without_usage_an_event_passes_untouched(text: str) -> None:
    assert cut_usage(chunk(text)) == (chunk(text), None)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_every_event_bears_our_id_and_the_clients_name(texts: list[str], name: str) -> None:
    heading = Heading("chatcmpl-ours", name)
    for text in texts:
        told = json.loads(heading.rewrite(chunk(text))[6:])
        assert (told["id"], told["model"]) == ("chatcmpl-ours", name)
        assert told["choices"] == json.loads(chunk(text)[6:])["choices"]


def test_an_engine_that_writes_its_events_otherwise_is_understood_too() -> None:
    heading = Heading("ours", "demo")
    for created in (1, 2):
        spaced = f'data: {{"model": "x", "created": {created}, "choices": [], "id": "y"}}'.encode()
        told = json.loads(heading.rewrite(spaced)[6:])
        assert (told["id"], told["model"], told["created"]) == ("ours", "demo", created)


def test_a_line_without_end_is_cut_off_at_a_megabyte() -> None:
    splitter = Splitter()
    with pytest.raises(BrokenStream):
        for _ in range(EVENT_BYTES_MAX // 65_536 + 1):
            splitter.feed(b"a" * 65_536)


def test_choices_are_told_apart() -> None:
    event = b'data: {"id":"1","choices":[{"index":3,"delta":{"content":"x"}}]}'
    assert choice_index(event) == 3
    assert choice_index(b"data: {}") == 0


def test_carriage_returns_are_accepted() -> None:
    assert Splitter().feed(b"data: 1\r\n\r\ndata: 2\r\n\r\n") == [b"data: 1", b"data: 2"]
