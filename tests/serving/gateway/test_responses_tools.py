"""Tools of Responses that are no plain functions: custom ones, namespaces, and hosted ones."""

import json
from typing import Any

import pytest

from serving.gateway.dialects.openai.responses import ResponsesDialect
from serving.gateway.dialects.openai.responses_tools import input_of
from serving.gateway.errors import BadRequest
from tests.fixtures import catalog
from tests.fixtures.engine_requests import told_to_vllm
from tests.fixtures.gateway import Stack

PATH = "/v1/responses"
RESPONSES = ResponsesDialect()
ASK: dict[str, Any] = {"model": "demo", "input": "How does a penstock feed a turbine?"}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "name": "open_gate",
    "parameters": {"type": "object", "properties": {"gate": {"type": "string"}}},
}
PATCH: dict[str, Any] = {"type": "custom", "name": "apply_patch", "description": "Patches files."}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: LINE+"}
NAMESPACE: dict[str, Any] = {
    "type": "namespace",
    "name": "agents",
    "description": "Agents.",
    "tools": [FUNCTION, PATCH],
}
HOSTED: list[dict[str, Any]] = [
    {"type": "web_search", "external_web_access": True},
    {"type": "mcp", "server_label": "x", "server_url": "https://x.test"},
    {"type": "web_search"},
    {"type": "a_tool_of_tomorrow", "whatever": {"it": ["says"]}},
]
HEADER = "x-penstock-omitted-tools"


def told(**fields: Any) -> dict[str, Any]:
    data = json.dumps(ASK | fields).encode()
    request = RESPONSES.decode(data)
    return told_to_vllm(RESPONSES.inference(request, body_bytes=len(data), model=catalog.model()))


def refused(**fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        told(**fields)
    return caught.value


async def events_of(stack: Stack, **fields: Any) -> list[Any]:
    stream = await stack.client().responses.create(**ASK | fields, stream=True)
    return [event async for event in stream]


async def test_hosted_tools_are_left_out_and_named(stack: Stack) -> None:
    for streamed in (False, True):
        body = ASK | {"tools": [*HOSTED, FUNCTION], "tool_choice": "auto", "stream": streamed}
        async with stack.post(PATH, body) as reply:
            assert reply.status == 200, await reply.text()
            assert reply.headers[HEADER] == "web_search, mcp, a_tool_of_tomorrow"
            if not streamed:
                assert [tool["name"] for tool in (await reply.json())["tools"]] == ["open_gate"]
    async with stack.post(PATH, ASK | {"tools": HOSTED, "tool_choice": "auto"}) as reply:
        assert reply.status == 200
        assert (await reply.json())["output"][0]["type"] == "message"
    async with stack.post(PATH, ASK | {"tools": [FUNCTION]}) as reply:
        assert HEADER not in reply.headers


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "web_search_preview"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    ],
)
def test_a_choice_of_nothing_but_hosted_tools_is_refused(choice: Any) -> None:
    assert (refused(tools=HOSTED, tool_choice=choice).param or "").startswith("tool_choice")


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    [tool] = told(tools=[PATCH | {"format": GRAMMAR}])["tools"]
    function = tool["function"]
    assert function["name"] == "apply_patch"
    assert function["description"].startswith("Patches files.")
    assert function["description"].endswith("lark grammar:\nstart: LINE+")
    assert function["parameters"]["properties"] == {"input": {"type": "string"}}
    choice = told(tools=[PATCH, FUNCTION], tool_choice={"type": "custom", "name": "apply_patch"})
    assert choice["tool_choice"]["function"] == {"name": "apply_patch"}


def test_the_tools_of_a_namespace_bear_its_name() -> None:
    names = [tool["function"]["name"] for tool in told(tools=[NAMESPACE, FUNCTION])["tools"]]
    assert names == ["agents.open_gate", "agents.apply_patch", "open_gate"]
    some = [{"type": "custom", "name": "apply_patch"}, {"type": "mcp", "server_label": "x"}]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": some}
    body = told(tools=[NAMESPACE, FUNCTION, *HOSTED], tool_choice=allowed)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["agents.apply_patch"]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([HOSTED[0], FUNCTION | {"parameters": {"type": "text"}}], "tools[1].parameters"),
        ([NAMESPACE | {"tools": [PATCH, FUNCTION | {"parameters": {"type": "text"}}]}],
         "tools[0].tools[1].parameters"),
        ([NAMESPACE | {"tools": [PATCH | {"foo": 1}]}], "tools[0].tools[0].foo"),
        ([FUNCTION, PATCH | {"name": "open_gate"}], "tools[1].name"),
        ([FUNCTION, {"type": "Function"}], "tools[1].type"),
        ([FUNCTION, "web_search"], "tools[1]"),
        ([FUNCTION, {"name": "f"}], "tools[1]"),
        ([NAMESPACE | {"name": f"n{at}", "tools": [FUNCTION] * 65} for at in range(2)], "tools"),
    ],
)  # fmt: skip
def test_the_tool_at_fault_is_named_by_its_place_in_the_request(tools: Any, param: str) -> None:
    error = refused(tools=tools)
    assert error.param == param
    assert f"'{param}'" in error.message


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("tool", [PATCH, NAMESPACE | {"tools": [PATCH]}], ids=["plain", "within"])
async def test_a_custom_tool_is_called_and_answered(
    stack: Stack, tool: dict[str, Any], streamed: bool
) -> None:
    create: Any = stack.client().responses.create
    if streamed:
        events = await events_of(stack, tools=[tool])
        first = events[-1].response
        assert [event.sequence_number for event in events] == list(range(len(events)))
        kinds = [event.type for event in events]
        assert kinds[2:-1] == [
            "response.output_item.added",
            "response.custom_tool_call_input.delta",
            "response.custom_tool_call_input.done",
            "response.output_item.done",
        ]
        assert events[2].item.input == ""
        assert events[3].delta == events[4].input == events[5].item.input
    else:
        first = await create(**ASK, tools=[tool])
    [call] = first.output
    assert (call.type, call.name, call.status) == ("custom_tool_call", "apply_patch", "completed")
    assert call.input
    assert not call.input.startswith("{")
    assert call.namespace == ("agents" if "tools" in tool else None)
    assert call.id.startswith("ctc_")
    answer = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done."}
    turns: Any = [{"role": "user", "content": ASK["input"]}, call.to_dict(), answer]
    second = await create(model="demo", input=turns, tools=[tool])
    assert second.output[0].type == "message"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_function_of_a_namespace_is_called_by_its_own_name(
    stack: Stack, streamed: bool
) -> None:
    create: Any = stack.client().responses.create
    if streamed:
        events = await events_of(stack, tools=[NAMESPACE])
        first = events[-1].response
        done = [event for event in events if event.type == "response.function_call_arguments.done"]
        assert [event.name for event in done] == ["open_gate"]
    else:
        first = await create(**ASK, tools=[NAMESPACE])
    [call] = first.output
    assert (call.type, call.name, call.namespace) == ("function_call", "open_gate", "agents")
    turns: Any = [{"role": "user", "content": "hi"}, call.to_dict()]
    [_, said] = told(input=turns)["messages"]
    assert said["tool_calls"][0]["function"]["name"] == "agents.open_gate"


def test_what_a_custom_tool_was_given_is_told_again_as_the_model_wrote_it() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": 'a "b"\n'}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "Done."}
    user = {"role": "user", "content": "hi"}
    _, said, answered = told(input=[user, call, output])["messages"]
    function = said["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"input": 'a "b"\n'}
    assert (answered["role"], answered["content"]) == ("tool", "Done.")


def test_of_a_call_that_breaks_off_the_text_there_is_is_told() -> None:
    text = 'a "b"\\\n\u00e9'
    whole = json.dumps({"input": text})
    assert input_of(whole) == text
    for end in range(len(whole)):
        assert text.startswith(input_of(whole[:end])), whole[:end]
    assert input_of("*** Begin Patch") == "*** Begin Patch"
