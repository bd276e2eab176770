"""A call of a tool that `max_tokens` cut, at every token: the same in every language, whole and
streamed, and never as markup. Streams of vLLM 0.32 and the demo model, recorded: their first chunks
are mostly those of the uncut one; then only the last of each is kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.engine.events import EngineEvent, TokenUsage
from serving.engine.response_parser import StreamParser
from serving.gateway.dialects.anthropic.messages import MessagesDialect
from serving.gateway.dialects.base import InferenceDialect
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.responses import ResponsesDialect
from tests.fixtures import catalog

RECORDED = Path(__file__).parents[1] / "engine" / "recorded" / "calls.jsonl"
ARGUMENTS = '{"city": "Rome"}'
NAMED_AT, BEGUN_AT, CALLED_AT, ENDS_AT = 19, 27, 33, 43
"""The tokens that end the name, begin the arguments, end them and end the answer."""
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "get_weather", "parameters": SCHEMA}
SAID = [{"role": "user", "content": "What is the weather in Rome?"}]
ASKED: dict[str, tuple[InferenceDialect, dict[str, Any]]] = {
    "chat": (
        ChatDialect(),
        {"messages": SAID, "tools": [{"type": "function", "function": FUNCTION}]},
    ),
    "responses": (ResponsesDialect(), {"input": SAID, "tools": [{"type": "function", **FUNCTION}]}),
    "messages": (
        MessagesDialect(),
        {
            "messages": SAID,
            "max_tokens": 99,
            "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
        },
    ),
}


def recorded(choice: str, interval: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The chunks of each cut."""
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    asked = [line for line in lines if (line["choice"], line["interval"]) == (choice, interval)]
    uncut = asked[-1]["chunks"]
    for line in asked:
        chunks = line.get("chunks") or [*uncut[: line["after"]], line["last"]]
        yield line["cut"], chunks


def events_of(choices: list[dict[str, Any]]) -> list[EngineEvent]:
    """What is read of an engine that says so."""
    head = {"id": "chatcmpl-our-id", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [json.dumps(head | {"choices": [each]}, separators=(",", ":")) for each in choices]
    reading = StreamParser(choices=1, prompts=1, may_call_tools=True, request_id="our-id")
    events = reading.feed("".join(f"data: {each}\n\n" for each in [*chunks, "[DONE]"]).encode())
    reading.finish()
    return events


def told(language: str, events: list[EngineEvent], *, streamed: bool) -> bytes:
    dialect, fields = ASKED[language]
    body = json.dumps({"model": "demo", "stream": streamed} | fields).encode()
    job = dialect.inference(dialect.decode(body), body_bytes=len(body), model=catalog.model())
    rendering = dialect.renderer(job, "our-id")
    said = b"".join(rendering.render([event]) for event in events)
    return said + rendering.finish(TokenUsage(input=3, output=5))


def deltas_of(stream: bytes) -> list[dict[str, Any]]:
    lines = stream.decode().split("\n")
    said = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return [json.loads(line) for line in said]


def chat_of(body: bytes) -> tuple[str | None, list[tuple[str, str]], str]:
    """The text, the calls and the reason of the end, as a client puts them together."""
    choice = json.loads(body)["choices"][0]
    calls = [each["function"] for each in choice["message"].get("tool_calls", ())]
    pairs = [(call["name"], call["arguments"]) for call in calls]
    return choice["message"]["content"], pairs, choice["finish_reason"]


def streamed_chat_of(body: bytes) -> tuple[str | None, list[tuple[str, str]], str]:
    """The same by the loop of OpenAI's guide, to which each first delta brings all it names."""
    calls: dict[int, Any] = {}
    text, reason = "", ""
    for chunk in deltas_of(body):
        [choice] = chunk["choices"]
        text += choice["delta"].get("content") or ""
        reason = choice["finish_reason"] or reason
        for call in choice["delta"].get("tool_calls") or ():
            if call["index"] not in calls:
                assert call["type"] == "function"
                assert call["id"]
                calls[call["index"]] = call
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    functions = [call["function"] for call in calls.values()]
    pairs = [(call["name"], call["arguments"]) for call in functions]
    return text if text or not pairs else None, pairs, reason


def arguments_at(cut: int) -> str:
    """What of the arguments is known so far; their pieces are those of the uncut stream."""
    pieces = ['{"', "city", '":', ' "', "R", "ome", '"}']
    return "".join(pieces[: max(0, cut - BEGUN_AT + 1)])


@pytest.mark.parametrize("interval", [1, 16])
@pytest.mark.parametrize("choice", ["auto", "required", "named"])
def test_a_call_cut_at_any_token_is_told_alike_everywhere(choice: str, interval: int) -> None:
    cuts = 0
    for cut, chunks in recorded(choice, interval):
        cuts += 1
        events = events_of(chunks)
        arguments, is_cut = arguments_at(cut), cut < ENDS_AT
        calls = [("get_weather", arguments)] if cut >= NAMED_AT else []
        # Like OpenAI's, vLLM's answer stops where the call was named beforehand.
        ended = "stop" if choice == "named" else "tool_calls"
        wanted = (None if calls else "", calls, "length" if is_cut else ended)
        assert chat_of(told("chat", events, streamed=False)) == wanted, cut
        assert streamed_chat_of(told("chat", events, streamed=True)) == wanted, cut

        whole = json.loads(told("responses", events, streamed=False))
        last = deltas_of(told("responses", events, streamed=True))[-1]["response"]
        assert last["output"] == whole["output"]
        assert last["status"] == whole["status"] == ("incomplete" if is_cut else "completed")
        items = [each for each in whole["output"] if each["type"] == "function_call"]
        assert [(each["name"], each["arguments"]) for each in items] == calls, cut

        message = json.loads(told("messages", events, streamed=False))
        blocks = [each for each in message["content"] if each["type"] == "tool_use"]
        input_ = json.loads(ARGUMENTS) if cut >= CALLED_AT else {}
        assert [(each["name"], each["input"]) for each in blocks] == [
            (name, input_) for name, _ in calls
        ]
        assert message["stop_reason"] == ("max_tokens" if is_cut else "tool_use")
        events_told = deltas_of(told("messages", events, streamed=True))
        partial = [each.get("delta", {}).get("partial_json", "") for each in events_told]
        assert "".join(partial) == arguments
        assert events_told[-2]["delta"]["stop_reason"] == message["stop_reason"]
        for language in ASKED:
            for streamed in (False, True):
                assert b"tool_call>" not in told(language, events, streamed=streamed)
    assert cuts == 44


def test_a_call_of_no_arguments_that_came_to_its_end_keeps_them() -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "now"}}
    empty = {"index": 0, "function": {"arguments": "{}"}}
    [event] = events_of(
        [{"index": 0, "delta": {"tool_calls": [call, empty]}, "finish_reason": "length"}]
    )
    [part] = event.chunk().choices
    assert part.delta is not None
    said = [each.function for each in part.delta.tool_calls or ()]
    assert [each and each.arguments for each in said] == ["", "{}"]


@pytest.mark.parametrize("name", ['a"b', "a}", '"function":{"name":"x"}', "\\"])
def test_only_the_key_is_taken_for_a_name(name: str) -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": name}}
    text = '"tool_calls":[{"function":{"name":"b"}}'
    [event] = events_of([{"index": 0, "delta": {"content": text, "tool_calls": [call]}}])
    [choice] = json.loads(event.raw)["choices"]
    assert choice["delta"]["content"] == text
    assert choice["delta"]["tool_calls"][0]["function"] == {"name": name, "arguments": ""}
