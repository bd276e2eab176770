"""A whole answer put together from a stream is the one that was cut up, however it was cut."""

import itertools
import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.dialects import accumulate
from serving.gateway.dialects.base import Dialect, InferenceRequest
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.completions import CompletionsDialect
from tests.fixtures import catalog
from tests.fixtures.engine_requests import for_vllm
from tests.fixtures.gateway import MESSAGES, Stack

CHAT, COMPLETIONS = ChatDialect(), CompletionsDialect()
ASKS: dict[Dialect, dict[str, Any]] = {
    CHAT: {"model": "demo", "messages": MESSAGES},
    COMPLETIONS: {"model": "demo", "prompt": "A penstock is"},
}
FUNCTION = {"type": "function", "function": {"name": "open_gate"}}
NUMBERS = st.floats(-50, 0, allow_nan=False)
TOKENS = st.lists(st.text(max_size=6), min_size=1, max_size=12)
ENDINGS = st.sampled_from([("stop", None), ("length", None), ("stop", "\n"), ("stop", 7)])


def job(dialect: Dialect, **fields: Any) -> InferenceRequest:
    data = json.dumps(ASKS[dialect] | fields).encode()
    return dialect.inference(dialect.decode(data), body_bytes=len(data), model=catalog.model())


def event(choices: list[dict[str, Any]]) -> EngineEvent:
    head = {"id": "e", "object": "o", "created": 17, "model": "var_demo"}
    return EngineEvent(json.dumps(head | {"choices": choices}).encode())


def assembled(work: InferenceRequest, events: list[EngineEvent]) -> list[dict[str, Any]]:
    rendering = work.dialect.renderer(work, "our-id")
    assert rendering.render(events) == b""
    body = json.loads(rendering.finish(TokenUsage(input=3, output=5)))
    assert body["id"].endswith("our-id")
    assert (body["model"], body["created"]) == ("demo", 17)
    assert body["usage"]["total_tokens"] == 8
    return body["choices"]


@st.composite
def pieces(draw: st.DrawFn, count: int) -> list[slice]:
    """Cut `count` tokens into chunks."""
    cuts = sorted(draw(st.sets(st.integers(1, count - 1)))) if count > 1 else []
    bounds = [0, *cuts, count]
    return [slice(start, end) for start, end in itertools.pairwise(bounds)]


@st.composite
def interleaved(draw: st.DrawFn, queues: list[list[Any]]) -> list[EngineEvent]:
    """Mix the chunks of several choices, each in its own order."""
    waiting = [list(queue) for queue in queues]
    events = []
    while any(waiting):
        queue = draw(st.sampled_from([queue for queue in waiting if queue]))
        events.append(event([queue.pop(0)]))
    return events


@given(data=st.data(), answers=st.lists(TOKENS, min_size=1, max_size=3), logged=st.booleans())
def test_chats_come_out_as_they_were(data: st.DataObject, answers: Any, logged: bool) -> None:
    whole, queues = [], []
    for index, tokens in enumerate(answers):
        reason, stop = data.draw(ENDINGS)
        logs = [{"token": t, "logprob": data.draw(NUMBERS), "top_logprobs": []} for t in tokens]
        message = {"role": "assistant", "content": "".join(tokens), "refusal": None}
        ending = {"finish_reason": reason, "stop_reason": stop}
        logprobs = {"content": logs} if logged else None
        whole.append({"index": index, "message": message, "logprobs": logprobs} | ending)
        empty = {"logprobs": None, "finish_reason": None}
        opening = {"index": index, "delta": {"role": "assistant", "content": ""}} | empty
        chunks = [opening]
        for piece in data.draw(pieces(len(tokens))):
            part = {"content": logs[piece]} if logged else None
            delta = {"content": "".join(tokens[piece])}
            chunks.append({"index": index, "delta": delta} | empty | {"logprobs": part})
        chunks[-1] |= ending
        queues.append(chunks)
    fields = {"n": len(answers), "temperature": 1}
    assert assembled(job(CHAT, **fields), data.draw(interleaved(queues))) == whole


@given(data=st.data(), answers=st.lists(TOKENS, min_size=1, max_size=3))
def test_completions_come_out_as_they_were(data: st.DataObject, answers: Any) -> None:
    whole, queues = [], []
    for index, tokens in enumerate(answers):
        reason, stop = data.draw(ENDINGS)
        lists = {
            "text_offset": list(range(len(tokens))),
            "token_logprobs": [data.draw(NUMBERS) for _ in tokens],
            "tokens": tokens,
            "top_logprobs": [{token: -1.5} for token in tokens],
        }
        ending = {"finish_reason": reason, "stop_reason": stop}
        text = {"text": "".join(tokens)}
        whole.append({"index": index} | text | {"logprobs": lists} | ending)
        chunks = []
        for piece in data.draw(pieces(len(tokens))):
            part = {name: entries[piece] for name, entries in lists.items()}
            text = {"text": "".join(tokens[piece])}
            chunks.append({"index": index} | text | {"logprobs": part, "finish_reason": None})
        chunks[-1] |= ending
        queues.append(chunks)
    work = job(COMPLETIONS, prompt=["water"] * len(answers))
    assert assembled(work, data.draw(interleaved(queues))) == whole


def test_thought_without_words_leaves_the_content_empty() -> None:
    deltas = [{"content": ""}, {"reasoning": "Hm"}, {"reasoning": "m."}]
    chunks = [{"index": 0, "delta": delta} for delta in deltas]
    events = [event([chunk]) for chunk in chunks]
    events.append(event([{"index": 0, "delta": {}, "finish_reason": "length"}]))
    [choice] = assembled(job(CHAT), events)
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning": "Hmm.",
    }


@pytest.mark.parametrize(
    "choices",
    [
        [{"index": 0, "delta": {"content": "no end"}}],
        [{"index": 1, "delta": {"content": "not asked for"}, "finish_reason": "stop"}],
        [{"index": -1, "delta": {"content": "not asked for"}, "finish_reason": "stop"}],
        [{"index": 0, "delta": {"content": 5}, "finish_reason": "stop"}],
    ],
)
def test_what_is_no_answer_is_not_passed_off_as_one(choices: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidEngineResponse):
        assembled(job(CHAT), [event(choices)])


def test_an_answer_never_outgrows_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulate, "ANSWER_BYTES_MAX", 200)
    with pytest.raises(InvalidEngineResponse, match="larger"):
        assembled(job(CHAT), [event([{"index": 0, "delta": {"content": "x" * 200}}])])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [FUNCTION]},
        {"tools": [FUNCTION], "tool_choice": "required"},
        {"tools": [FUNCTION], "tool_choice": "none"},
        {"tools": [FUNCTION], "stream": True},
    ],
)
def test_an_engine_is_always_asked_for_a_stream(fields: dict[str, Any]) -> None:
    made = job(CHAT, **fields)
    request = for_vllm(made)
    body = json.loads(b"".join(request.body))
    assert body["stream"] is request.is_streamed is True
    assert ("stream_interval" in body) == (not made.engine_request.is_streamed)
    assert ("return_token_ids" in body) == made.engine_request.may_call_tools


def without_engine_fields(choice: dict[str, Any]) -> dict[str, Any]:
    """What remains of an engine's choice when all is gone that OpenAI has not."""
    own = {"token_ids", "routed_experts", "annotations", "audio", "function_call", "reasoning"}
    kept = {name: value for name, value in choice.items() if name not in own}
    if "message" in kept:
        kept["message"] = without_engine_fields(kept["message"])
    return kept


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"stop": ["e"]}, {"max_tokens": 1}])
async def test_an_answer_equals_the_engines_own(
    stack: Stack, path: str, fields: dict[str, Any]
) -> None:
    dialect = next(each for each in ASKS if each.path == path)
    ask = ASKS[dialect] | {"max_tokens": 40, "seed": 5, "temperature": 1} | fields
    async with stack.post(path, ask) as reply:
        ours = await reply.json()
    engine = f"http://127.0.0.1:{stack.engines[0].port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(engine, json=ask | {"model": "var_demo"}) as reply,
    ):
        theirs = await reply.json()
    assert ours["choices"] == [without_engine_fields(choice) for choice in theirs["choices"]]
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [ours["usage"][name] for name in counts] == [theirs["usage"][name] for name in counts]
