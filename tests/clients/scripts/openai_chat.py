"""The official `openai` client for Python, over chat."""

from typing import Any

import openai
import trying
from pydantic import BaseModel

client = openai.OpenAI(base_url=trying.BASE_URL, api_key=trying.API_KEY)
completions = client.chat.completions
ASKED: dict[str, Any] = {"model": trying.MODEL, "temperature": 0}
FUNCTION = {"name": "get_weather", "parameters": trying.WEATHER_SCHEMA}
WITH_TOOL: dict[str, Any] = {**ASKED, "tools": [{"type": "function", "function": FUNCTION}]}


class Person(BaseModel):
    name: str
    age: int


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def chat() -> None:
    answer = completions.create(messages=[user(trying.SUM)], **ASKED)
    trying.holds(answer.choices[0].message.content, trying.SUM_RESULT)
    assert answer.usage.completion_tokens > 0


def stream() -> None:
    with_usage = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(completions.create(messages=[user(trying.SUM)], **ASKED, **with_usage))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    trying.holds(text, trying.SUM_RESULT)
    assert len(chunks) > 3
    assert chunks[-1].usage.total_tokens > 0
    with completions.stream(messages=[user(trying.SUM)], **ASKED) as events:
        answer = events.get_final_completion()
    trying.holds(answer.choices[0].message.content, trying.SUM_RESULT)


def structured() -> None:
    answer = completions.parse(messages=[user(trying.PERSON)], response_format=Person, **ASKED)
    trying.is_person(answer.choices[0].message.parsed.model_dump())


def tools() -> None:
    turns: list[Any] = [user(trying.WEATHER)]
    said = completions.create(messages=turns, **WITH_TOOL).choices[0]
    assert said.finish_reason == "tool_calls", said
    [call] = said.message.tool_calls
    result = trying.weather(call.function.arguments)
    turns += [said.message, {"role": "tool", "tool_call_id": call.id, "content": result}]
    answer = completions.create(messages=turns, **WITH_TOOL)
    trying.holds(answer.choices[0].message.content, trying.DEGREES)
    with completions.stream(messages=turns[:1], **WITH_TOOL) as events:
        message = events.get_final_completion().choices[0].message
    trying.weather(message.tool_calls[0].function.arguments)


def history() -> None:
    turns: list[Any] = [user(trying.SUM)]
    first = completions.create(messages=turns, **ASKED)
    turns += [first.choices[0].message, user(trying.OTHER_SUM)]
    second = completions.create(messages=turns, **ASKED)
    trying.holds(second.choices[0].message.content, trying.OTHER_RESULT)
    assert second.usage.prompt_tokens > first.usage.total_tokens


def embeddings() -> None:
    texts = [trying.SUM, trying.PERSON]
    asked = {"model": trying.EMBEDDING_MODEL, "input": texts}
    plain = client.embeddings.create(**asked, encoding_format="float")
    packed = client.embeddings.create(**asked)
    trying.are_vectors([each.embedding for each in plain.data])
    trying.are_vectors([each.embedding for each in packed.data])
    assert plain.usage.prompt_tokens > 0


def refusal() -> str:
    try:
        completions.create(messages=[user(trying.SUM)], store=True, **ASKED)
    except openai.BadRequestError as error:
        assert error.param == "store", error.param
        return trying.refused(error, "store")
    raise AssertionError("store is not refused")


trying.try_all(chat, stream, structured, tools, history, embeddings, refusal)
