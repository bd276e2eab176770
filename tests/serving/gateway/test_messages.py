"""Messages for the official client: whole and streamed, with tools, and what is refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from serving.engine.simulated.settings import Fault
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack

PATH = "/v1/messages"
ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 100}
SCHEMA = {"type": "object", "properties": {"gate": {"type": "string"}}}
TOOL: dict[str, Any] = {"name": "open_gate", "description": "Opens.", "input_schema": SCHEMA}


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The official client, which must not retry by itself."""
    async with anthropic.AsyncAnthropic(
        api_key=stack.tenant.secret, base_url=stack.url, max_retries=0
    ) as made:
        yield made


async def test_a_whole_answer_says_what_was_taken(
    stack: Stack, client: anthropic.AsyncAnthropic
) -> None:
    answer = await client.messages.create(**ASK | {"max_tokens": 12}, system="Be brief.")
    assert answer.id.startswith("msg_")
    assert (answer.role, answer.model, answer.stop_reason) == ("assistant", "demo", "max_tokens")
    assert [block.type for block in answer.content] == ["text"]
    event = await stack.one_event()
    assert event.endpoint == "messages"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (event.input_tokens, 12)
    again = await client.messages.create(**ASK | {"max_tokens": 12}, system="Be brief." * 20)
    cached = await client.messages.create(**ASK | {"max_tokens": 12}, system="Be brief." * 20)
    assert again.usage.cache_read_input_tokens == 0
    assert cached.usage.cache_read_input_tokens
    parts = cached.usage.input_tokens + cached.usage.cache_read_input_tokens
    assert parts == again.usage.input_tokens


async def test_it_is_the_same_work_as_a_chat(
    stack: Stack, client: anthropic.AsyncAnthropic
) -> None:
    said = await client.messages.create(**ASK)
    chat = await stack.client().chat.completions.create(model="demo", messages=MESSAGES)
    assert said.stop_reason == "end_turn"
    assert said.content[0].text == chat.choices[0].message.content  # type: ignore[union-attr]
    assert chat.usage
    assert said.usage.input_tokens == chat.usage.prompt_tokens
    assert said.usage.output_tokens == chat.usage.completion_tokens


async def test_a_stream_starts_and_stops_as_anthropics(client: anthropic.AsyncAnthropic) -> None:
    stream = await client.messages.create(**ASK, stream=True)
    kinds = [event.type async for event in stream]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    whole = await client.messages.create(**ASK)
    async with client.messages.stream(**ASK) as told:
        last = await told.get_final_message()
    assert last.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert last.usage.output_tokens == whole.usage.output_tokens
    assert last.usage.cache_read_input_tokens == whole.usage.cache_read_input_tokens


async def test_a_stream_says_at_once_how_much_was_read(stack: Stack) -> None:
    async with stack.post(PATH, ASK | {"stream": True}) as reply:
        text = await reply.text()
    assert "event: ping" in text
    assert "[DONE]" not in text
    data = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert data[0]["message"]["usage"]["input_tokens"] > 0
    assert data[-2]["usage"]["output_tokens"] > 0


async def test_it_counts_what_a_message_takes(client: anthropic.AsyncAnthropic) -> None:
    asked: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "tools": [TOOL]}
    counted = await client.messages.count_tokens(**asked, system="Be brief.")
    answer = await client.messages.create(**asked, system="Be brief.", max_tokens=3)
    assert counted.input_tokens == answer.usage.input_tokens


async def test_a_stop_sequence_is_named(client: anthropic.AsyncAnthropic) -> None:
    answer = await client.messages.create(**ASK, stop_sequences=["e"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "e")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_is_used_and_its_result_taken(
    client: anthropic.AsyncAnthropic, streamed: bool
) -> None:
    turns: list[Any] = list(MESSAGES)
    if streamed:
        async with client.messages.stream(**ASK, tools=[TOOL]) as stream:
            first: Any = await stream.get_final_message()
    else:
        first = await client.messages.create(**ASK, tools=[TOOL])
    assert first.stop_reason == "tool_use"
    turns.append({"role": "assistant", "content": first.content})
    results = []
    for block in first.content:
        assert set(block.input) == {"gate"}
        results.append({"type": "tool_result", "tool_use_id": block.id, "content": "open"})
    turns.append({"role": "user", "content": results})
    second = await client.messages.create(**ASK | {"messages": turns}, tools=[TOOL])
    assert second.stop_reason == "end_turn"


async def test_either_header_bears_the_key_and_a_wrong_one_is_told_in_anthropics_words(
    stack: Stack,
) -> None:
    for headers in ({"x-api-key": stack.tenant.secret, "authorization": ""}, {}):
        async with stack.post(PATH, ASK, headers) as reply:
            assert reply.status == 200
    wrong = {"authorization": "", "x-api-key": catalog.tenant("unknown").secret}
    async with stack.post(PATH, ASK, wrong) as reply:
        body = await reply.json()
    assert reply.status == 401
    assert body["type"] == "error"
    assert body["error"]["type"] == "authentication_error"
    assert body["request_id"] == reply.headers["x-request-id"]
    async with stack.post("/v1/chat/completions", ASK, wrong) as reply:
        assert reply.status == 401
        assert "param" in (await reply.json())["error"]


async def test_the_official_client_raises_its_own_errors(
    stack: Stack, client: anthropic.AsyncAnthropic
) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(**ASK | {"model": "nobody"})
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        await client.messages.create(**ASK | {"max_tokens": 300})
    stack.control.billing.limits["balance:org_a"] = 1
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.messages.create(**ASK)
    assert caught.value.status_code == 402
    assert caught.value.body["error"]["type"] == "billing_error"  # type: ignore[index]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "thinking"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [TOOL | {"input_schema": {"type": "text"}}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_result",
          "tool_use_id": "a"}]}]}, "messages[0].content[0].type"),
        ({"container": "c"}, "container"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "text"}}}},
         "output_config.format.schema"),
        ({"messages": [{"role": "user", "content": "word " * 3_000}]}, "prompt is too long: "),
    ],
)  # fmt: skip
async def test_what_is_not_done_is_refused_by_name(
    stack: Stack, fields: dict[str, Any], param: str
) -> None:
    async with stack.post(PATH, ASK | fields) as reply:
        body = await reply.json()
    assert reply.status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert param in body["error"]["message"]


async def test_a_stream_that_breaks_says_so_in_an_event(tmp_path: Path) -> None:
    async with running_stack(tmp_path, itl_seconds=0.005) as stack:
        stack.engines[0].script.add(Fault("die", after_chunks=3))
        async with anthropic.AsyncAnthropic(
            api_key=stack.tenant.secret, base_url=stack.url, max_retries=0
        ) as client:
            with pytest.raises(anthropic.APIStatusError, match="failed to answer"):
                async with client.messages.stream(**ASK) as stream:
                    await stream.get_final_message()
        assert (await stack.one_event()).outcome == "engine_failed"
