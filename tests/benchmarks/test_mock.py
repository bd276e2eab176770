"""The mock engine says what an engine says, in whole HTTP messages."""

import json

import pytest

from tests.benchmarks.mock import Counters, EngineProtocol, frames, whole

pytestmark = pytest.mark.unit


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def request(**fields: object) -> bytes:
    body = json.dumps(fields).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def answer_to(*parts: bytes) -> tuple[bytes, Counters]:
    counters, wire = Counters(), Wire()
    protocol = EngineProtocol(counters, itl_seconds=0.0)
    protocol.connection_made(wire)
    for part in parts:
        protocol.data_received(part)
    return wire.written, counters


def events(stream: bytes) -> list[bytes]:
    return [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]


@pytest.mark.parametrize("with_usage", [False, True])
def test_a_stream_has_a_role_then_one_frame_a_token_then_the_end(with_usage: bool) -> None:
    *chunks, done = events(b"".join(frames(5, with_usage)))
    assert done == b"[DONE]"
    parsed = [json.loads(chunk) for chunk in chunks]
    assert len(parsed) == 1 + 5 + with_usage
    assert parsed[5]["choices"][0]["finish_reason"] == "length"
    assert [c["usage"]["completion_tokens"] for c in parsed if "usage" in c] == (
        [0, 1, 2, 3, 4, 5, 5] if with_usage else []
    )


def test_an_interval_gathers_tokens_but_for_the_first() -> None:
    ask = {"max_tokens": 20, "stream": True, "stream_options": {"include_usage": True}}
    gathered, counters = answer_to(request(**ask, stream_interval=8))
    told = [json.loads(event)["usage"]["completion_tokens"] for event in events(gathered)[:-1]]
    assert told == [0, 1, 9, 17, 20, 20]
    assert counters.tokens == 20


def test_a_whole_answer_has_the_length_it_says() -> None:
    head, body = whole(7).split(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["usage"]["completion_tokens"] == 7


def test_a_request_that_arrives_in_pieces_is_answered_once() -> None:
    sent = request(max_tokens=3)
    written, counters = answer_to(sent[:20], sent[20:-5], sent[-5:])
    assert written == whole(3)
    assert (counters.requests, counters.tokens) == (1, 3)


def test_two_requests_in_one_piece_are_answered_in_turn() -> None:
    written, counters = answer_to(request(max_tokens=1) + request(max_tokens=2))
    assert written == whole(1) + whole(2)
    assert counters.requests == 2


def test_usage_is_streamed_only_where_it_was_asked_for() -> None:
    asked, _ = answer_to(request(stream=True, stream_options={"include_usage": True}))
    unasked, _ = answer_to(request(stream=True))
    assert b'"usage"' in asked
    assert b'"usage"' not in unasked
