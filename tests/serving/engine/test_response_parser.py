"""Bytes of a stream: however they are cut, events come out whole, without usage, under our name."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.errors import InvalidEngineResponse, RequestRejected
from serving.engine.events import EngineEvent, TokenUsage, read_usage
from serving.engine.response_parser import (
    EVENT_BYTES_MAX,
    SseSplitter,
    StreamParser,
    choice_index,
    split_usage,
)
from serving.gateway.dialects.openai.render import ChunkHeadRewriter

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
    return json.dumps(body | extra, separators=(",", ":")).encode()


def sse(*chunks: bytes, end: bytes = b"\n\n") -> bytes:
    """Return a stream of chunks."""
    return b"".join(b"data: " + each + end for each in chunks)


USAGE = {"prompt_tokens": 7, "total_tokens": 9, "completion_tokens": 2}


@given(st.lists(TEXTS, max_size=8), st.integers(1, 60), st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_events_survive_any_cutting(texts: list[str], size: int, end: bytes) -> None:
    chunks = [chunk(text) for text in texts] + [b"[DONE]"]
    stream = sse(*chunks, end=end)
    splitter = SseSplitter()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [event for piece in pieces for event in splitter.feed(piece)] == chunks


@pytest.mark.parametrize(
    "stream",
    [
        b"\n\r\r\n+\r",
        b"data: 1\r\n\r\r\ndata: 2\n\r\n",
        b"\r\r\n\n\r",
        b"data:  1\n\ndata: 2\nid: 3\n\n",
    ],
)
def test_odd_endings_of_lines_are_read_alike_wherever_they_are_cut(stream: bytes) -> None:
    """Found by fuzzing: what was kept of a stream was unfolded twice, and how many spaces before
    the data were dropped depended on the other events of a piece."""
    whole = SseSplitter().feed(stream)
    for cut in range(len(stream)):
        splitter = SseSplitter()
        assert [*splitter.feed(stream[:cut]), *splitter.feed(stream[cut:])] == whole


def test_a_large_event_in_small_pieces_costs_what_its_bytes_cost() -> None:
    """Searching all of it again for each piece took 40 s for 4 MB."""
    splitter, began = SseSplitter(), time.process_time()
    for _ in range(40_000):
        assert splitter.feed(b"a" * 100) == []
    assert splitter.feed(b"\n\n") == [b""]
    assert time.process_time() - began < 4


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b": a comment", b""),
        (b"event: ping\ndata: {}", b"{}"),
        (b"data:{}", b"{}"),
        (b"data: 1\ndata: 2", b"1\n2"),
        (b"id: 1\ndata: 1\ndata: 2", b"1\n2"),
    ],
)
def test_other_fields_of_an_event_are_left_out(event: bytes, data: bytes) -> None:
    assert SseSplitter().feed(event + b"\n\n") == [data]


@given(TEXTS, st.booleans(), st.booleans())
def test_usage_is_cut_and_nothing_else_is_touched(text: str, nested: bool, late: bool) -> None:
    usage = USAGE | ({"prompt_tokens_details": {"cached_tokens": 3}} if nested else {})
    extra = {"prompt_token_ids": None} if late else {}
    rest, cut = split_usage(chunk(text, usage, **extra))
    assert json.loads(rest) == json.loads(chunk(text, **extra))
    assert cut is not None
    assert json.loads(cut) == usage
    assert read_usage(cut).output == 2


@given(TEXTS)
def test_without_usage_an_event_passes_untouched(text: str) -> None:
    assert split_usage(chunk(text)) == (chunk(text), None)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_every_event_bears_our_id_and_the_clients_name(texts: list[str], name: str) -> None:
    heading = ChunkHeadRewriter("chatcmpl-ours", name)
    for text in texts:
        told = json.loads(heading.write([EngineEvent(chunk(text))])[len(b"data: ") :])
        assert (told["id"], told["model"]) == ("chatcmpl-ours", name)
        assert told["choices"] == json.loads(chunk(text))["choices"]


def test_an_engine_that_writes_its_events_otherwise_is_understood_too() -> None:
    heading = ChunkHeadRewriter("ours", "demo")
    for created in (1, 2):
        spaced = f'{{"model": "x", "created": {created}, "choices": [], "id": "y"}}'.encode()
        told = json.loads(heading.write([EngineEvent(spaced)])[len(b"data: ") :])
        assert (told["id"], told["model"], told["created"]) == ("ours", "demo", created)


def test_an_event_without_end_is_cut_off() -> None:
    splitter = SseSplitter()
    with pytest.raises(InvalidEngineResponse):
        for _ in range(EVENT_BYTES_MAX // 65_536 + 1):
            splitter.feed(b"a" * 65_536)


def test_choices_are_told_apart() -> None:
    event = b'{"id":"1","choices":[{"index":3,"delta":{"content":"x"}}]}'
    assert choice_index(event) == 3
    assert choice_index(b"{}") == 0


def reading(**changes: object) -> StreamParser:
    """Return the reading of one answer to `our-id`."""
    return StreamParser(**{"choices": 1, "prompts": 1, "request_id": "1"} | changes)  # type: ignore[arg-type]


@given(TEXTS, st.sampled_from([None, "stop", "abort"]), st.booleans())
def test_the_order_of_an_events_keys_changes_nothing(
    text: str, finish_reason: str | None, nested: bool
) -> None:
    """Most events are as vLLM orders them, and are read by that order."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    usage = USAGE | ({"prompt_tokens_details": {"cached_tokens": 3}} if nested else {})
    ordered = chunk(text, choices=[choice | {"token_ids": None}], usage=usage)
    turned = chunk(text, choices=[{"index": 0, "token_ids": None} | choice], usage=usage)
    if finish_reason == "abort":
        for event in (ordered, turned):
            with pytest.raises(InvalidEngineResponse):
                reading().feed(sse(event))
        return
    for event in (ordered, turned):
        stream = reading()
        (read,) = stream.feed(sse(event))
        assert json.loads(read.raw) == json.loads(chunk(text, choices=[choice]))
        assert stream.tokens == TokenUsage(input=7, output=2)


def test_a_stream_is_over_only_when_the_engine_says_so() -> None:
    stream = reading()
    assert len(stream.feed(sse(chunk("a")))) == 1
    with pytest.raises(InvalidEngineResponse, match="early"):
        stream.finish()
    stream.feed(sse(b"[DONE]"))
    assert stream.finish() is None


def test_usage_so_far_and_at_the_end() -> None:
    stream = reading()
    stream.feed(sse(chunk("a", USAGE)))
    assert stream.tokens == TokenUsage(input=7, output=2)
    final = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": None}
    last = json.dumps({"id": "1", "choices": [], "usage": final}, separators=(",", ":"))
    assert stream.feed(sse(last.encode(), b"[DONE]")) == []
    assert stream.tokens == TokenUsage(input=7, output=5)


@pytest.mark.parametrize("other", ["chatcmpl-2", "", "chatcmpl-1x"])
def test_an_answer_to_another_request_is_nobodys(other: str) -> None:
    with pytest.raises(InvalidEngineResponse, match="another request"):
        reading().feed(sse(chunk("a", id=other)))
    assert reading(request_id=None).feed(sse(chunk("a", id=other)))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400, "message": "Grammar error"}, RequestRejected),
        ({"code": 500, "message": "dead"}, InvalidEngineResponse),
        ({"code": "what", "message": 7}, InvalidEngineResponse),
    ],
)
def test_an_error_inside_a_stream(error: dict, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        reading().feed(sse(json.dumps({"error": error}, separators=(",", ":")).encode(), b"[DONE]"))


def test_dropped_work_is_no_ending() -> None:
    ended = {"index": 0, "delta": {}, "finish_reason": "abort"}
    with pytest.raises(InvalidEngineResponse, match="dropped"):
        reading().feed(sse(chunk("", choices=[ended]), b"[DONE]"))


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes_are_read_or_broken(data: bytes, size: int) -> None:
    stream = reading()
    try:
        for at in range(0, len(data), size):
            for event in stream.feed(data[at : at + size]):
                event.chunk()
        stream.finish()
    except (InvalidEngineResponse, RequestRejected):
        return


@pytest.mark.parametrize(
    "spoiled",
    [
        b'{"id":"\xff"}',
        b'{"\xff":1,"usage": {}}',
        b'[{"usage": {}}]',
        b'{"error":{"message":"\xff"}}',
    ],
)
def test_what_is_no_utf8_or_no_object_is_broken(spoiled: bytes) -> None:
    with pytest.raises(InvalidEngineResponse):
        for event in reading().feed(sse(spoiled)):
            event.chunk()


@given(TEXTS, st.lists(st.integers(0, 10**6), max_size=4) | st.none())
def test_keys_of_the_engines_own_go_no_further(text: str, ids: list[int] | None) -> None:
    own = {"prompt_token_ids": ids, "prompt_text": None}
    parsed = json.loads(chunk(text, USAGE, **own))
    parsed["choices"][0]["token_ids"] = ids
    said = json.dumps(parsed, separators=(",", ":")).encode()
    [event] = reading().feed(sse(said))
    assert json.loads(event.raw) == json.loads(chunk(text))
