"""The official `openai` client for Python, over Responses."""

from typing import Any

import openai
import trying
from pydantic import BaseModel

client = openai.OpenAI(base_url=trying.BASE_URL, api_key=trying.API_KEY)
responses = client.responses
ASKED: dict[str, Any] = {"model": trying.MODEL, "temperature": 0}
FUNCTION = {"type": "function", "name": "get_weather", "parameters": trying.WEATHER_SCHEMA}
WITH_TOOL: dict[str, Any] = {**ASKED, "tools": [{**FUNCTION, "strict": True}]}


class Person(BaseModel):
    name: str
    age: int


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def chat() -> None:
    answer = responses.create(input=trying.SUM, **ASKED)
    trying.holds(answer.output_text, trying.SUM_RESULT)
    assert answer.usage.output_tokens > 0


def stream() -> None:
    events = list(responses.create(input=trying.SUM, stream=True, **ASKED))
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    trying.holds("".join(pieces), trying.SUM_RESULT)
    assert len(pieces) > 1
    assert events[-1].response.usage.total_tokens > 0
    with responses.stream(input=trying.SUM, **ASKED) as helper:
        trying.holds(helper.get_final_response().output_text, trying.SUM_RESULT)


def structured() -> None:
    answer = responses.parse(input=trying.PERSON, text_format=Person, **ASKED)
    trying.is_person(answer.output_parsed.model_dump())


def tools() -> None:
    turns: list[Any] = [user(trying.WEATHER)]
    called = responses.create(input=turns, **WITH_TOOL)
    [call] = [item for item in called.output if item.type == "function_call"]
    result = trying.weather(call.arguments)
    turns += called.output
    turns += [{"type": "function_call_output", "call_id": call.call_id, "output": result}]
    answer = responses.create(input=turns, **WITH_TOOL)
    trying.holds(answer.output_text, trying.DEGREES)
    with responses.stream(input=turns[:1], **WITH_TOOL) as events:
        [call] = events.get_final_response().output
    trying.weather(call.arguments)


def history() -> None:
    first = responses.create(input=trying.SUM, **ASKED)
    turns: list[Any] = [user(trying.SUM), *first.output, user(trying.OTHER_SUM)]
    second = responses.create(input=turns, **ASKED)
    trying.holds(second.output_text, trying.OTHER_RESULT)
    assert second.usage.input_tokens > first.usage.total_tokens


def refusal() -> str:
    try:
        responses.create(input=trying.SUM, previous_response_id="resp_1", **ASKED)
    except openai.BadRequestError as error:
        assert error.param == "previous_response_id", error.param
        return trying.refused(error, "previous_response_id")
    raise AssertionError("previous_response_id is not refused")


trying.try_all(chat, stream, structured, tools, history, refusal)
