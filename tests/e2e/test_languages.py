"""One question in every language, whole and streamed: the same tokens, the same charge, and what
vLLM counted."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from tests.fixtures.books import Books
from tests.fixtures.engine_counters import engine_tokens, settle
from tests.fixtures.official_clients import Clients, official_clients
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.e2e

QUESTION = "What is Penstock?"
SYSTEM = "Answer in one sentence."
TOKENS = 16


@pytest.fixture
async def clients(stack: Any) -> AsyncIterator[Clients]:
    """Both official clients."""
    async with official_clients(stack) as both:
        yield both


Told = tuple[int, int]
"""Input and output tokens."""


async def chat(on: Clients, *, streamed: bool) -> tuple[str, Told]:
    asked: dict[str, Any] = {
        "model": on.model,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": QUESTION},
        ],
        "max_tokens": TOKENS,
        "temperature": 0,
    }
    if not streamed:
        answer = await on.openai.chat.completions.create(**asked)
        usage = answer.usage
        return answer.choices[0].message.content or "", (
            usage.prompt_tokens,
            usage.completion_tokens,
        )
    stream = await on.openai.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    usage = chunks[-1].usage
    return text, (usage.prompt_tokens, usage.completion_tokens)


async def responses(on: Clients, *, streamed: bool) -> tuple[str, Told]:
    asked: dict[str, Any] = {
        "model": on.model,
        "instructions": SYSTEM,
        "input": QUESTION,
        "max_output_tokens": TOKENS,
        "temperature": 0,
    }
    if streamed:
        stream = await on.openai.responses.create(**asked, stream=True)
        answer = [event async for event in stream][-1].response
    else:
        answer = await on.openai.responses.create(**asked)
    return answer.output_text, (answer.usage.input_tokens, answer.usage.output_tokens)


async def messages(on: Clients, *, streamed: bool) -> tuple[str, Told]:
    asked: dict[str, Any] = {
        "model": on.model,
        "system": SYSTEM,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": TOKENS,
        "extra_body": {"temperature": 0},
    }
    if streamed:
        async with on.anthropic.messages.stream(**asked) as stream:
            answer = await stream.get_final_message()
    else:
        answer = await on.anthropic.messages.create(**asked)
    usage = answer.usage
    read = usage.input_tokens + usage.cache_read_input_tokens
    return answer.content[0].text, (read, usage.output_tokens)


async def test_the_same_question_takes_the_same_in_every_language(
    stack: Any, clients: Clients
) -> None:
    books = Books(stack.database_url)
    counted, billed = settle(lambda: engine_tokens(stack.replicas())), books.tokens()
    expected = books.event_count() + 6
    answers = [
        await ask(clients, streamed=streamed)
        for ask in (chat, responses, messages)
        for streamed in (False, True)
    ]
    assert len(set(answers)) == 1
    [(text, told)] = set(answers)
    assert text
    assert 0 < told[1] <= TOKENS
    wait_until(lambda: books.event_count() >= expected, seconds=60, what="every event is booked")
    counted = settle(lambda: engine_tokens(stack.replicas())) - counted
    billed = books.tokens() - billed
    told_in_all = Counter({"input": 6 * told[0], "output": 6 * told[1]})
    for name in ("input", "output"):
        assert counted[name] == billed[name] == told_in_all[name]


async def test_counting_says_what_a_message_will_take(clients: Clients) -> None:
    counted = await clients.anthropic.messages.count_tokens(
        model=clients.model, system=SYSTEM, messages=[{"role": "user", "content": QUESTION}]
    )
    _, told = await messages(clients, streamed=False)
    assert counted.input_tokens == told[0]


async def test_a_prompt_is_given_back_alone_and_lists_of_tokens_are_prompts(
    clients: Clients,
) -> None:
    create = clients.openai.completions.create
    echoed = await create(
        model=clients.model, prompt=QUESTION, max_tokens=0, extra_body={"echo": True}
    )
    assert echoed.choices[0].text == QUESTION
    several = await create(model=clients.model, prompt=[[5, 6, 7], [8, 9]], max_tokens=2)
    assert len(several.choices) == 2
    assert several.usage.prompt_tokens == 5


async def test_a_prompt_that_is_too_long_is_told_its_size(clients: Clients) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 2048 tokens"):
        await clients.openai.chat.completions.create(
            model=clients.model,
            messages=[{"role": "user", "content": "water " * 3_000}],
            max_tokens=12,
        )
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 2048"):
        await clients.anthropic.messages.create(
            model=clients.model,
            messages=[{"role": "user", "content": "water " * 3_000}],
            max_tokens=12,
        )
