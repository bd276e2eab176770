"""litellm, to which we are one of OpenAI's kind."""

import os
from typing import Any

# Else it fetches a price list of its own at its import.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import trying
from pydantic import BaseModel

ASKED: dict[str, Any] = {
    "model": f"openai/{trying.MODEL}",
    "api_base": trying.BASE_URL,
    "api_key": trying.API_KEY,
    "temperature": 0,
}
FUNCTION = {"name": "get_weather", "parameters": trying.WEATHER_SCHEMA}
WITH_TOOL: dict[str, Any] = {**ASKED, "tools": [{"type": "function", "function": FUNCTION}]}


class Person(BaseModel):
    name: str
    age: int


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def chat() -> None:
    answer = litellm.completion(messages=[user(trying.SUM)], **ASKED)
    trying.holds(answer.choices[0].message.content, trying.SUM_RESULT)
    assert answer.usage.completion_tokens > 0


def stream() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(litellm.completion(messages=[user(trying.SUM)], **ASKED, **options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    trying.holds(text, trying.SUM_RESULT)
    assert len(chunks) > 3
    assert chunks[-1].usage.total_tokens > 0


def structured() -> None:
    answer = litellm.completion(messages=[user(trying.PERSON)], response_format=Person, **ASKED)
    trying.is_person_text(answer.choices[0].message.content)


def tools() -> None:
    turns: list[Any] = [user(trying.WEATHER)]
    said = litellm.completion(messages=turns, **WITH_TOOL).choices[0]
    assert said.finish_reason == "tool_calls", said
    [call] = said.message.tool_calls
    result = trying.weather(call.function.arguments)
    turns += [said.message, {"role": "tool", "tool_call_id": call.id, "content": result}]
    answer = litellm.completion(messages=turns, **WITH_TOOL)
    trying.holds(answer.choices[0].message.content, trying.DEGREES)
    chunks = list(litellm.completion(messages=turns[:1], stream=True, **WITH_TOOL))
    whole = litellm.stream_chunk_builder(chunks, messages=turns[:1])
    trying.weather(whole.choices[0].message.tool_calls[0].function.arguments)


def history() -> None:
    turns: list[Any] = [user(trying.SUM)]
    first = litellm.completion(messages=turns, **ASKED)
    turns += [first.choices[0].message, user(trying.OTHER_SUM)]
    second = litellm.completion(messages=turns, **ASKED)
    trying.holds(second.choices[0].message.content, trying.OTHER_RESULT)


def embeddings() -> None:
    asked = ASKED | {"model": f"openai/{trying.EMBEDDING_MODEL}"}
    asked.pop("temperature")
    answer = litellm.embedding(input=[trying.SUM, trying.PERSON], **asked)
    trying.are_vectors([each["embedding"] for each in answer.data])


def refusal() -> str:
    try:
        litellm.completion(messages=[user(trying.SUM)], store=True, **ASKED)
    except litellm.BadRequestError as error:
        return trying.refused(error, "store")
    raise AssertionError("store is not refused")


trying.try_all(chat, stream, structured, tools, history, embeddings, refusal)
