"""What both of pydantic-ai's models for OpenAI are tried with: agents."""

from collections.abc import Callable
from typing import Any

import trying
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model

SETTINGS: Any = {"temperature": 0}


class Person(BaseModel):
    name: str
    age: int


def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return trying.weather({"city": city})


def calls(messages: list[Any]) -> list[str]:
    """Return the tools that were called."""
    said = [each for each in messages if isinstance(each, ModelResponse)]
    return [p.tool_name for each in said for p in each.parts if isinstance(p, ToolCallPart)]


def features(model: Model, *, not_offered: Any, field: str) -> list[Callable[[], Any]]:
    """Return what to try with a model; asked for what is `not_offered`, it is told the `field`."""
    agent = Agent(model, model_settings=SETTINGS)
    armed = Agent(model, model_settings=SETTINGS, tools=[get_weather])

    async def chat() -> None:
        result = await agent.run(trying.SUM)
        trying.holds(result.output, trying.SUM_RESULT)
        assert result.usage.output_tokens > 0

    async def stream() -> None:
        async with agent.run_stream(trying.SUM) as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        trying.holds("".join(pieces), trying.SUM_RESULT)
        assert len(pieces) > 1

    async def structured() -> None:
        native = Agent(model, model_settings=SETTINGS, output_type=NativeOutput(Person))
        trying.is_person((await native.run(trying.PERSON)).output.model_dump())
        by_tool = Agent(model, model_settings=SETTINGS, output_type=Person)
        trying.is_person((await by_tool.run(trying.PERSON)).output.model_dump())

    async def tools() -> None:
        result = await armed.run(trying.WEATHER)
        assert calls(result.all_messages()) == ["get_weather"]
        trying.holds(result.output, trying.DEGREES)
        async with armed.run_stream(trying.WEATHER) as streamed:
            trying.holds(await streamed.get_output(), trying.DEGREES)

    async def history() -> None:
        first = await agent.run(trying.SUM)
        second = await agent.run(trying.OTHER_SUM, message_history=first.all_messages())
        trying.holds(second.output, trying.OTHER_RESULT)

    async def refusal() -> str:
        try:
            await agent.run(trying.SUM, model_settings=not_offered)
        except ModelHTTPError as error:
            return trying.refused(error, field)
        raise AssertionError(f"{field} is not refused")

    return [chat, stream, structured, tools, history, refusal]
