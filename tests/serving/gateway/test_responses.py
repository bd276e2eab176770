"""Responses for the official client: whole and streamed, with tools, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from openai.types.responses import Response

from serving.engine.simulated.settings import Fault
from tests.fixtures.gateway import MESSAGES, Stack, running_stack

PATH = "/v1/responses"
ASK: dict[str, Any] = {"model": "demo", "input": "How does a penstock feed a turbine?"}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "open_gate",
    "parameters": {"type": "object", "properties": {"gate": {"type": "string"}}},
    "strict": False,
}


async def refusal(stack: Stack, **fields: Any) -> dict[str, Any]:
    async with stack.post(PATH, ASK | fields) as reply:
        assert reply.status == 400
        error: dict[str, Any] = (await reply.json())["error"]
    return error


async def test_a_whole_answer_says_what_was_asked_and_taken(stack: Stack) -> None:
    answer = await stack.client().responses.create(
        **ASK, instructions="Be brief.", max_output_tokens=12, metadata={"a": "b"}
    )
    assert answer.id.startswith("resp_")
    assert (answer.status, answer.model, answer.store) == ("incomplete", "demo", False)
    assert answer.incomplete_details
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert (answer.instructions, answer.metadata) == ("Be brief.", {"a": "b"})
    assert answer.output_text
    [item] = answer.output
    assert (item.type, item.status) == ("message", "incomplete")
    event = await stack.one_event()
    assert answer.usage
    assert event.endpoint == "responses"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (event.input_tokens, 12)
    assert answer.usage.input_tokens_details.cached_tokens == event.cached_input_tokens
    assert answer.usage.total_tokens == event.input_tokens + 12


async def test_it_is_the_same_work_as_a_chat(stack: Stack) -> None:
    client = stack.client()
    said = await client.responses.create(**ASK)
    chat = await client.chat.completions.create(model="demo", messages=MESSAGES)
    assert said.status == "completed"
    assert said.output_text == chat.choices[0].message.content
    assert said.usage
    assert chat.usage
    assert said.usage.input_tokens == chat.usage.prompt_tokens
    assert said.usage.output_tokens == chat.usage.completion_tokens


async def test_all_parts_of_a_message_count(stack: Stack) -> None:
    client = stack.client()
    parts = [{"type": "input_text", "text": text} for text in ("one", "two and three")]
    said = [
        await client.responses.create(
            model="demo", input=[{"role": "user", "content": parts[:count]}], max_output_tokens=16
        )
        for count in (1, 2)
    ]
    counts = [answer.usage.input_tokens for answer in said if answer.usage]
    assert counts[0] < counts[1]


async def test_a_stream_is_numbered_and_ends_in_the_whole_answer(stack: Stack) -> None:
    events = [event async for event in await stack.client().responses.create(**ASK, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events if event.type != "response.output_text.delta"]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    whole = await stack.client().responses.create(**ASK)
    last: Response = events[-1].response  # type: ignore[union-attr]
    assert text == last.output_text == whole.output_text
    assert last.usage
    assert whole.usage
    assert last.usage.output_tokens == whole.usage.output_tokens


async def test_a_stream_that_was_cut_short_is_incomplete(stack: Stack) -> None:
    stream = await stack.client().responses.create(**ASK, stream=True, max_output_tokens=3)
    events = [event async for event in stream]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output[0].status == "incomplete"  # type: ignore[union-attr]


@pytest.mark.parametrize("description", ["Opens a gate.", "é" * 8_000], ids=["short", "long"])
async def test_tools_and_formats_are_told_as_they_were_asked(
    stack: Stack, description: str
) -> None:
    """Long ones are read, and written, by a process beside the loop."""
    tools = [TOOL | {"name": f"gate_{each}", "description": description} for each in range(8)]
    schema = {"type": "object", "properties": {"level": {"type": "number"}}}
    asked: dict[str, Any] = {
        "instructions": 'Say "hm".',
        "max_output_tokens": 16,
        "tools": tools,
        "tool_choice": {"type": "function", "name": "gate_1"},
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema}},
    }
    async with stack.post(PATH, ASK | {"tools": tools[:1]}) as reply:
        [plain] = (await reply.json())["tools"]
    assert plain == tools[0]
    async with stack.post(PATH, ASK | asked) as reply:
        whole = await reply.json()
    async with stack.post(PATH, ASK | asked | {"stream": True}) as reply:
        lines = [line[6:] async for line in reply.content if line.startswith(b"data: {")]
    events = [json.loads(line) for line in lines]
    told = [whole, *(event["response"] for event in events if "response" in event)]
    assert len(told) == 4
    for answer in told:
        assert answer["text"]["format"]["schema"] == schema
        assert {name: answer[name] for name in asked if name != "text"} == {
            name: value for name, value in asked.items() if name != "text"
        }


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_function_is_called_and_its_answer_taken(stack: Stack, streamed: bool) -> None:
    client = stack.client()
    turns: list[Any] = [{"role": "user", "content": ASK["input"]}]
    if streamed:
        async with client.responses.stream(model="demo", input=turns, tools=[TOOL]) as stream:
            first: Response = await stream.get_final_response()
    else:
        first = await client.responses.create(model="demo", input=turns, tools=[TOOL])
    turns += first.output
    calls = [item for item in first.output if item.type == "function_call"]
    assert [set(json.loads(call.arguments)) for call in calls] == [{"gate"}]
    turns += [
        {"type": "function_call_output", "call_id": call.call_id, "output": "open"}
        for call in calls
    ]
    second = await client.responses.create(model="demo", input=turns, tools=[TOOL])
    assert second.output_text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": "x", "y": 1}]}, "input[0].y"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].type"),
        ({"input": [5]}, "input[0]"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_output_tokens": 257}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"$ref": "#/x"}}}},
         "text.format.schema"),
        ({"tools": [TOOL | {"parameters": {"type": "text"}}]}, "tools[0].parameters"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"input": "word " * 3_000}, "input"),
    ],
)  # fmt: skip
async def test_what_is_not_done_is_refused_by_name(
    stack: Stack, fields: dict[str, Any], param: str
) -> None:
    error = await refusal(stack, **fields)
    assert error["param"] == param
    assert set(error) == {"message", "type", "param", "code"}


async def test_the_official_client_raises_its_own_error(stack: Stack) -> None:
    with pytest.raises(BadRequestError) as caught:
        await stack.client().responses.create(**ASK, store=True)
    assert caught.value.param == "store"


async def test_a_stream_that_breaks_says_so_in_an_event_of_its_number(tmp_path: Path) -> None:
    async with running_stack(tmp_path, itl_seconds=0.005) as stack:
        stack.engines[0].script.add(Fault("die", after_chunks=3))
        async with stack.post(PATH, ASK | {"stream": True}) as reply:
            text = await reply.text()
        data = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert [event["sequence_number"] for event in data] == list(range(len(data)))
        assert data[-1]["type"] == "error"
        assert data[-1]["code"] == "model_unavailable"
        assert "event: error" in text
        assert (await stack.one_event()).outcome == "engine_failed"
