"""What langchain-openai's model is tried with, over chat and over Responses."""

from collections.abc import Callable
from typing import Any

import openai
import trying
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return trying.weather({"city": city})


def made(**options: Any) -> ChatOpenAI:
    """Return the model; LangChain counts tokens of a stream where it is told to."""
    return ChatOpenAI(
        model=trying.MODEL,
        base_url=trying.BASE_URL,
        api_key=trying.API_KEY,
        temperature=0,
        stream_usage=True,
        **options,
    )


def features(model: ChatOpenAI, *, not_offered: Any, field: str) -> list[Callable[[], Any]]:
    """Return what to try with a model; asked for what is `not_offered`, it is told the `field`."""
    armed = model.bind_tools([get_weather])

    def chat() -> None:
        answer = model.invoke(trying.SUM)
        trying.holds(answer.text, trying.SUM_RESULT)
        assert answer.usage_metadata["output_tokens"] > 0

    def stream() -> None:
        chunks = list(model.stream(trying.SUM))
        trying.holds("".join(chunk.text for chunk in chunks), trying.SUM_RESULT)
        assert len(chunks) > 3
        assert any(chunk.usage_metadata for chunk in chunks)

    def structured() -> None:
        for method in ("json_schema", "function_calling"):
            bound = model.with_structured_output(Person, method=method)
            trying.is_person(bound.invoke(trying.PERSON).model_dump())

    def tools() -> None:
        turns: list[Any] = [HumanMessage(trying.WEATHER)]
        said = armed.invoke(turns)
        [call] = said.tool_calls
        turns += [said, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])]
        trying.holds(armed.invoke(turns).text, trying.DEGREES)
        chunks = list(armed.stream(turns[:1]))
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        trying.weather(whole.tool_calls[0]["args"])

    def history() -> None:
        first = model.invoke(trying.SUM)
        turns = [HumanMessage(trying.SUM), first, HumanMessage(trying.OTHER_SUM)]
        trying.holds(model.invoke(turns).text, trying.OTHER_RESULT)

    def refusal() -> str:
        try:
            model.bind(**not_offered).invoke(trying.SUM)
        except openai.BadRequestError as error:
            return trying.refused(error, field)
        raise AssertionError(f"{field} is not refused")

    return [chat, stream, structured, tools, history, refusal]
