"""The demo model calls a tool and makes its answer of what the tool said: in every language, whole
and streamed, with real vLLM's parser, and metered alike."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.fixtures.books import Books
from tests.fixtures.engine_counters import engine_tokens, is_at_work, settle
from tests.fixtures.official_clients import Clients, official_clients
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.e2e

QUESTION = "What is the weather in Rome?"
SAID = "12 degrees"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "parameters": SCHEMA}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]
TOKENS = 100
LATE_TOKENS_MAX = 50
"""What a busy vLLM makes of a hung-up stream before it hears of that; an idle one makes a few."""


@pytest.fixture
async def clients(stack: Any) -> AsyncIterator[Clients]:
    """Both official clients."""
    async with official_clients(stack) as both:
        yield both


@dataclass(frozen=True)
class Turn:
    """What came of one request: its call or its text, its tokens, and what is appended to go on."""

    name: str | None
    arguments: Any
    text: str
    input_tokens: int
    output_tokens: int
    appended: Any

    @property
    def told(self) -> Any:
        """All but the client's own form of it."""
        return self.name, self.arguments, self.text, self.input_tokens, self.output_tokens


Ask = Callable[..., Awaitable[Turn]]


async def chat(on: Clients, turns: list[Any], *, streamed: bool) -> Turn:
    asked: dict[str, Any] = {"model": on.model, "max_tokens": TOKENS, "temperature": 0}
    asked |= {"messages": turns or [{"role": "user", "content": QUESTION}], "tools": TOOLS}
    if streamed:
        usage = {"stream_options": {"include_usage": True}}
        async with on.openai.chat.completions.stream(**asked, **usage) as events:
            answer = await events.get_final_completion()
    else:
        answer = await on.openai.chat.completions.create(**asked)
    message, used = answer.choices[0].message, answer.usage
    [call] = message.tool_calls or [None]
    result = call and {"role": "tool", "tool_call_id": call.id, "content": SAID}
    return Turn(
        call and call.function.name,
        call and json.loads(call.function.arguments),
        message.content or "",
        used.prompt_tokens,
        used.completion_tokens,
        [*asked["messages"], message, result],
    )


async def responses(on: Clients, turns: list[Any], *, streamed: bool) -> Turn:
    asked: dict[str, Any] = {"model": on.model, "max_output_tokens": TOKENS, "temperature": 0}
    asked |= {"input": turns or [{"role": "user", "content": QUESTION}]}
    asked |= {"tools": [{"type": "function", "strict": False, **FUNCTION}]}
    if streamed:
        async with on.openai.responses.stream(**asked) as events:
            answer = await events.get_final_response()
    else:
        answer = await on.openai.responses.create(**asked)
    [call] = [item for item in answer.output if item.type == "function_call"] or [None]
    result = call and {"type": "function_call_output", "call_id": call.call_id, "output": SAID}
    return Turn(
        call and call.name,
        call and json.loads(call.arguments),
        answer.output_text,
        answer.usage.input_tokens,
        answer.usage.output_tokens,
        [*asked["input"], *answer.output, result],
    )


async def messages(on: Clients, turns: list[Any], *, streamed: bool) -> Turn:
    asked: dict[str, Any] = {"model": on.model, "max_tokens": TOKENS}
    asked |= {"extra_body": {"temperature": 0}}
    asked |= {"messages": turns or [{"role": "user", "content": QUESTION}]}
    asked |= {"tools": [{"name": "get_weather", "input_schema": SCHEMA}]}
    if streamed:
        async with on.anthropic.messages.stream(**asked) as events:
            answer = await events.get_final_message()
    else:
        answer = await on.anthropic.messages.create(**asked)
    [call] = [block for block in answer.content if block.type == "tool_use"] or [None]
    result = call and {"type": "tool_result", "tool_use_id": call.id, "content": SAID}
    said = {"role": "assistant", "content": answer.content}
    usage = answer.usage
    return Turn(
        call and call.name,
        call and call.input,
        "".join(block.text for block in answer.content if block.type == "text"),
        usage.input_tokens + usage.cache_read_input_tokens,
        usage.output_tokens,
        [*asked["messages"], said, {"role": "user", "content": [result]}],
    )


LANGUAGES: dict[str, Ask] = {"chat": chat, "responses": responses, "messages": messages}


async def test_a_loop_of_two_turns_is_the_same_in_every_language_and_metered_as_vllm_counts(
    stack: Any, clients: Clients
) -> None:
    books = Books(stack.database_url)
    counted, billed = settle(lambda: engine_tokens(stack.replicas())), books.tokens()
    expected = books.event_count() + 4 * len(LANGUAGES)
    firsts, seconds = [], []
    for ask in LANGUAGES.values():
        for streamed in (False, True):
            called = await ask(clients, [], streamed=streamed)
            answered = await ask(clients, called.appended, streamed=streamed)
            firsts.append(called.told)
            seconds.append(answered.told)
    assert len({json.dumps(told) for told in firsts}) == 1, firsts
    assert len({json.dumps(told) for told in seconds}) == 1, seconds
    name, arguments, text, *_ = firsts[0]
    assert (name, arguments, text) == ("get_weather", {"city": "Rome"}, "")
    assert seconds[0][0] is None
    assert SAID in seconds[0][2]
    wait_until(lambda: books.event_count() >= expected, seconds=60, what="every event is booked")
    counted = settle(lambda: engine_tokens(stack.replicas())) - counted
    billed = books.tokens() - billed
    told = Counter(
        {
            "input": 6 * (firsts[0][3] + seconds[0][3]),
            "output": 6 * (firsts[0][4] + seconds[0][4]),
        }
    )
    for meter in ("input", "output"):
        assert counted[meter] == billed[meter] == told[meter]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "note"}),
        ({"type": "function", "function": {"name": "note"}}, {"note"}),
    ],
    ids=["required", "named"],
)
async def test_a_call_that_must_be_made_is_made(
    clients: Clients, choice: Any, names: set[str]
) -> None:
    note = {"name": "note", "parameters": SCHEMA}
    answer = await clients.openai.chat.completions.create(
        model=clients.model,
        messages=[{"role": "user", "content": QUESTION}],
        tools=[*TOOLS, {"type": "function", "function": note}],
        tool_choice=choice,
        max_tokens=TOKENS,
        temperature=0,
    )
    [call] = answer.choices[0].message.tool_calls or []
    assert call.function.name in names
    assert isinstance(json.loads(call.function.arguments)["city"], str)


async def test_what_no_tool_is_for_is_answered(clients: Clients) -> None:
    answer = await clients.openai.chat.completions.create(
        model=clients.model,
        messages=[{"role": "user", "content": "Hello"}],
        tools=TOOLS,
        temperature=0,
    )
    assert answer.choices[0].finish_reason == "stop"
    assert "Penstock" in (answer.choices[0].message.content or "")


@pytest.mark.full
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
async def test_who_hangs_up_amid_a_call_pays_what_was_made(stack: Any, streamed: bool) -> None:
    """The engine is left before its end, and what it made by then is billed."""
    books = Books(stack.database_url)
    counted, billed = settle(lambda: engine_tokens(stack.replicas())), books.tokens()
    expected = books.event_count() + 1
    body = {
        "model": stack.model,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": TOOLS,
        "temperature": 0,
        "ignore_eos": True,
        "max_tokens": 200,
        "stream": streamed,
    }
    headers = {"authorization": f"Bearer {stack.api_key}"}
    url = f"{stack.api_base}/chat/completions"
    async with aiohttp.ClientSession(headers=headers) as session:
        if streamed:
            async with session.post(url, json=body) as reply:
                assert reply.status == 200
                async for line in reply.content:
                    if b'"tool_calls"' in line:
                        break
        else:
            asked = asyncio.create_task(session.post(url, json=body))
            await asyncio.to_thread(
                wait_until,
                lambda: is_at_work(stack.replica()),
                seconds=60,
                what="the engine works on it",
                every_seconds=0.01,
            )
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
    wait_until(lambda: books.event_count() >= expected, seconds=60, what="it is booked")
    counted = settle(lambda: engine_tokens(stack.replicas())) - counted
    billed = books.tokens() - billed
    assert billed["input"] == counted["input"] > 0
    assert 0 <= counted["output"] - billed["output"] <= LATE_TOKENS_MAX
    assert billed["output"] > 0
