"""A stranger's round trip: what we answer, appended and sent back, is accepted."""

import json
from typing import Any

from anthropic.types import Message as AnthropicMessage
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from serving.contract.text_guard import MARK
from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.dialects.anthropic.messages import MessagesDialect
from serving.gateway.dialects.anthropic.messages_render import arguments_of
from serving.gateway.dialects.base import Dialect, InferenceRequest
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.completions import CompletionsDialect
from serving.gateway.dialects.openai.responses import ResponsesDialect
from tests.fixtures import catalog
from tests.fixtures.engine_requests import told_to_vllm
from tests.fixtures.gateway import MESSAGES, Stack

CHAT, COMPLETIONS = ChatDialect(), CompletionsDialect()
RESPONSES, ANTHROPICS = ResponsesDialect(), MessagesDialect()
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters=MARK), max_size=12)
"""Without the mark of the gateway's own, which goes from whatever a client sends (test_marking)."""
FUNCTION: dict[str, Any] = {
    "name": "open_gate",
    "parameters": {"type": "object", "properties": {"gate": {"type": "string"}}},
}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALLS = st.lists(st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS}), max_size=3)
ANSWERS = st.fixed_dictionaries(
    {"content": st.none() | TEXTS, "reasoning": st.none() | TEXTS, "calls": CALLS}
)


def job(dialect: Dialect, body: dict[str, Any]) -> InferenceRequest:
    data = json.dumps(body).encode()
    return dialect.inference(dialect.decode(data), body_bytes=len(data), model=catalog.model())


def calls_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"id": f"chatcmpl-tool-{place}", "type": "function", "function": call}
        for place, call in enumerate(answer["calls"])
    ]


def engines_stream(answer: dict[str, Any]) -> list[EngineEvent]:
    """What vLLM streams."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning": letter} for letter in answer["reasoning"] or ""]
    deltas += [{"content": letter} for letter in answer["content"] or ""]
    for index, call in enumerate(calls_of(answer)):
        opening = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [call | {"index": index, "function": opening}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": letter}}]}
            for letter in call["function"]["arguments"]
        ]
    head = {"id": "e", "object": "o", "created": 17, "model": "var_demo"}
    choices: list[dict[str, Any]] = [{"index": 0, "delta": each} for each in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": None})
    return [EngineEvent(json.dumps(head | {"choices": [choice]}).encode()) for choice in choices]


def answered(work: InferenceRequest, answer: dict[str, Any]) -> dict[str, Any]:
    """What the client gets of an engine's answer."""
    rendering = work.dialect.renderer(work, "our-id")
    rendering.render(engines_stream(answer))
    body: dict[str, Any] = json.loads(rendering.finish(TokenUsage(input=3, output=5)))
    return body


@settings(deadline=None)  # the clients' types are built at the first answer
@given(ANSWERS, st.booleans())
def test_chat_takes_its_own_messages_back(answer: dict[str, Any], dumped: bool) -> None:
    ask = {"model": "demo", "messages": MESSAGES, "tools": TOOLS}
    body = answered(job(CHAT, ask), answer)
    typed = ChatCompletion.model_validate(body).choices[0].message
    message = typed.model_dump() if dumped else body["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "done"}
        for call in message.get("tool_calls") or ()
    ]
    again = job(CHAT, ask | {"messages": [*MESSAGES, message, *results]})
    heard = told_to_vllm(again)["messages"][1]
    assert set(heard) <= {"role", "content", "refusal", "reasoning", "tool_calls"}
    assert heard.get("tool_calls", []) == calls_of(answer)
    assert (heard.get("content") or "") == (answer["content"] or "")
    assert (heard.get("reasoning") or "") == (answer["reasoning"] or "")


@given(TEXTS, st.sampled_from([None, {}, {"refusal": None}]))
def test_what_litellm_adds_is_left_out(said: str, own: dict[str, Any] | None) -> None:
    message = {"role": "assistant", "content": said, "provider_specific_fields": own}
    again = job(CHAT, {"model": "demo", "messages": [*MESSAGES, message, *MESSAGES]})
    assert told_to_vllm(again)["messages"][1] == {"role": "assistant", "content": said}


@given(CALLS.filter(bool))
def test_a_turn_that_only_called_tools_may_say_an_empty_list(calls: list[dict[str, Any]]) -> None:
    called = calls_of({"calls": calls})
    message = {"role": "assistant", "content": [], "tool_calls": called}
    again = job(CHAT, {"model": "demo", "messages": [*MESSAGES, message, *MESSAGES]})
    heard = told_to_vllm(again)["messages"][1]
    assert heard == {"role": "assistant", "tool_calls": called}


def heard_again(work: InferenceRequest) -> dict[str, Any]:
    """The assistant's turn, as an engine hears it when it was sent back."""
    turns = [turn for turn in told_to_vllm(work)["messages"] if turn["role"] == "assistant"]
    assert len(turns) == 1
    turn: dict[str, Any] = turns[0]
    assert set(turn) <= {"role", "content", "reasoning", "tool_calls"}
    return turn


def told_by_events(stream: bytes) -> list[dict[str, Any]]:
    lines = stream.decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def streamed(work: InferenceRequest, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that a client gets of an engine's stream."""
    rendering = work.dialect.renderer(work, "our-id")
    data = b"".join(rendering.render([event]) for event in engines_stream(answer))
    return told_by_events(data + rendering.finish(TokenUsage(input=3, output=5)))


@settings(deadline=None)  # the clients' types are built at the first answer
@given(ANSWERS, st.sampled_from(["whole", "streamed"]), st.booleans())
def test_responses_take_their_own_items_back(
    answer: dict[str, Any], how: str, dumped: bool
) -> None:
    ask = {"model": "demo", "input": "Water?", "tools": [FUNCTION | {"type": "function"}]}
    if how == "streamed":
        events = streamed(job(RESPONSES, ask | {"stream": True}), answer)
        body = events[-1]["response"]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert done == body["output"]
    else:
        body = answered(job(RESPONSES, ask), answer)
    typed = Response.model_validate(body)
    items = [item.model_dump() for item in typed.output] if dumped else body["output"]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "done"}
        for item in items
        if item["type"] == "function_call"
    ]
    turns = [{"role": "user", "content": "Water?"}, *items, *results]
    heard = heard_again(job(RESPONSES, ask | {"input": turns}))
    assert heard.get("tool_calls", []) == calls_of(answer)
    assert (heard.get("content") or "") == (answer["content"] or "")
    assert (heard.get("reasoning") or "") == (answer["reasoning"] or "")


@settings(deadline=None)  # the clients' types are built at the first answer
@given(ANSWERS, st.sampled_from(["whole", "streamed"]), st.booleans())
def test_messages_take_their_own_blocks_back(
    answer: dict[str, Any], how: str, dumped: bool
) -> None:
    tool = {"name": "open_gate", "input_schema": FUNCTION["parameters"]}
    ask = {"model": "demo", "messages": MESSAGES, "tools": [tool], "max_tokens": 50}
    if how == "streamed":
        blocks = blocks_of(streamed(job(ANTHROPICS, ask | {"stream": True}), answer))
    else:
        body = answered(job(ANTHROPICS, ask), answer)
        typed = AnthropicMessage.model_validate(body)
        blocks = [block.model_dump() for block in typed.content] if dumped else body["content"]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    turns = [*MESSAGES, {"role": "assistant", "content": blocks}]
    turns.append({"role": "user", "content": results or "Go on."})
    heard = heard_again(job(ANTHROPICS, ask | {"messages": turns}))
    called = [call["function"] for call in heard.get("tool_calls", [])]
    assert [call["name"] for call in called] == [call["name"] for call in answer["calls"]]
    for call, meant in zip(called, answer["calls"], strict=True):
        assert json.loads(call["arguments"]) == arguments_of(meant["arguments"])
    assert (heard.get("content") or "") == (answer["content"] or "")
    assert (heard.get("reasoning") or "") == (answer["reasoning"] or "")


def blocks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put blocks together as clients do."""
    blocks: list[dict[str, Any]] = []
    written = ""
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            written = ""
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "input_json_delta":
                written += delta["partial_json"]
                blocks[-1]["input"] = arguments_of(written)
            else:
                name = "text" if delta["type"] == "text_delta" else "thinking"
                blocks[-1][name] += delta[name]
    return blocks


@given(st.text(max_size=30))
def test_completions_take_their_own_text_back(text: str) -> None:
    ask = {"model": "demo", "prompt": "Water"}
    work = job(COMPLETIONS, ask)
    rendering = work.dialect.renderer(work, "our-id")
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    said = {"id": "e", "object": "o", "created": 17, "model": "m", "choices": [choice]}
    rendering.render([EngineEvent(json.dumps(said).encode())])
    body = json.loads(rendering.finish(TokenUsage(input=3, output=5)))
    again = job(COMPLETIONS, ask | {"prompt": "Water" + body["choices"][0]["text"]})
    assert told_to_vllm(again)["prompt"] == "Water" + text


def test_nothing_of_the_engines_own_is_in_an_answer() -> None:
    ask = {"model": "demo", "messages": MESSAGES, "tools": TOOLS}
    answer = {"content": "hi", "reasoning": None, "calls": []}
    body = answered(job(CHAT, ask), answer)
    assert set(body) == {"id", "object", "created", "model", "choices", "usage"}
    choice = body["choices"][0]
    named = {"index", "message", "logprobs", "finish_reason", "stop_reason"}
    assert set(choice) == named
    assert set(choice["message"]) == {"role", "content", "refusal"}


async def test_a_stream_holds_nothing_of_the_engines_own(stack: Stack) -> None:
    for path, asked in (
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/completions", {"prompt": "Water"}),
    ):
        body = {"model": "demo", "max_tokens": 3, "stream": True} | asked
        async with stack.post(path, body) as reply:
            text = await reply.text()
        assert "[DONE]" in text
        assert "token_ids" not in text
        assert "prompt_text" not in text


async def test_the_official_client_calls_a_tool_and_gets_its_answer_whole(stack: Stack) -> None:
    client = stack.client()
    messages: list[Any] = list(MESSAGES)
    first = await client.chat.completions.create(model="demo", messages=messages, tools=TOOLS)
    assert first.choices[0].finish_reason == "tool_calls"
    messages.append(first.choices[0].message)
    for call in first.choices[0].message.tool_calls or []:
        assert set(json.loads(call.function.arguments)) == {"gate"}
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "open"})
    second = await client.chat.completions.create(model="demo", messages=messages, tools=TOOLS)
    assert second.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content


async def test_the_official_client_calls_a_tool_and_gets_its_answer_streamed(stack: Stack) -> None:
    client = stack.client()
    messages: list[Any] = list(MESSAGES)
    async with client.chat.completions.stream(
        model="demo", messages=messages, tools=TOOLS
    ) as stream:
        first = await stream.get_final_completion()
    messages.append(first.choices[0].message)
    for call in first.choices[0].message.tool_calls or []:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "open"})
    assert len(messages) == 3
    second = await client.chat.completions.create(model="demo", messages=messages, tools=TOOLS)
    assert second.choices[0].message.content


async def test_one_of_the_allowed_tools_is_called(stack: Stack) -> None:
    other = {"type": "function", "function": FUNCTION | {"name": "close_gate"}}
    named = {"type": "function", "function": {"name": "close_gate"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    answer = await stack.client().chat.completions.create(
        model="demo",
        messages=MESSAGES,
        tools=[*TOOLS, other],
        tool_choice=choice,  # type: ignore[arg-type]
    )
    [call] = answer.choices[0].message.tool_calls or []
    assert call.function.name == "close_gate"
