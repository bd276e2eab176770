"""The official `anthropic` client for Python."""

from typing import Any

import anthropic
import trying

client = anthropic.Anthropic(base_url=trying.BASE_URL.removesuffix("/v1"), api_key=trying.API_KEY)
# The client's newest releases know no temperature of their own.
ASKED: dict[str, Any] = {
    "model": trying.MODEL,
    "max_tokens": 100,
    "extra_body": {"temperature": 0},
}
TOOL = {"name": "get_weather", "input_schema": trying.WEATHER_SCHEMA}
WITH_TOOL: dict[str, Any] = {**ASKED, "tools": [TOOL]}


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def chat() -> None:
    turns = [user(trying.SUM)]
    answer = client.messages.create(messages=turns, **ASKED)
    trying.holds(answer.content[0].text, trying.SUM_RESULT)
    counted = client.messages.count_tokens(model=trying.MODEL, messages=turns)
    usage = answer.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def stream() -> None:
    with client.messages.stream(messages=[user(trying.SUM)], **ASKED) as events:
        pieces = list(events.text_stream)
        answer = events.get_final_message()
    trying.holds("".join(pieces), trying.SUM_RESULT)
    assert len(pieces) > 1
    assert answer.usage.output_tokens > 0


def structured() -> None:
    form = {"type": "json_schema", "schema": trying.PERSON_SCHEMA}
    answer = client.messages.create(
        messages=[user(trying.PERSON)], output_config={"format": form}, **ASKED
    )
    trying.is_person_text(answer.content[0].text)


def tools() -> None:
    turns = [user(trying.WEATHER)]
    said = client.messages.create(messages=turns, **WITH_TOOL)
    assert said.stop_reason == "tool_use", said
    [used] = [block for block in said.content if block.type == "tool_use"]
    result = trying.weather(used.input)
    block = {"type": "tool_result", "tool_use_id": used.id, "content": result}
    turns += [{"role": "assistant", "content": said.content}, user([block])]
    answer = client.messages.create(messages=turns, **WITH_TOOL)
    trying.holds(answer.content[0].text, trying.DEGREES)
    with client.messages.stream(messages=turns[:1], **WITH_TOOL) as events:
        streamed = events.get_final_message()
    trying.weather(streamed.content[-1].input)


def history() -> None:
    turns = [user(trying.SUM)]
    first = client.messages.create(messages=turns, **ASKED)
    turns += [{"role": "assistant", "content": first.content}, user(trying.OTHER_SUM)]
    second = client.messages.create(messages=turns, **ASKED)
    trying.holds(second.content[0].text, trying.OTHER_RESULT)


def refusal() -> str:
    try:
        client.messages.create(
            messages=[user(trying.SUM)],
            thinking={"type": "enabled", "budget_tokens": 1024},
            **ASKED,
        )
    except anthropic.BadRequestError as error:
        return trying.refused(error, "thinking")
    raise AssertionError("a budget for thinking is not refused")


trying.try_all(chat, stream, structured, tools, history, refusal)
