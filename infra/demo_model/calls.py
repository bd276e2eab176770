"""Asks for held-out calls of tools, one of up to three on offer, and counts the right ones."""

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

from openai import AsyncOpenAI

from infra.demo_model.engine_probe import STREAMS
from infra.demo_model.skills.tools import Tool, Wanted, draw_wanted
from infra.demo_model.split import is_held_out

CALLS = 100
SEED = 20261122
_ANSWER_TOKENS_MAX = 128


def draw_calls(count: int = CALLS, seed: int = SEED) -> list[tuple[Wanted, list[Tool]]]:
    """Return held-out calls, each with the tools to offer, no two of one name."""
    rng = Random(seed)
    drawn: list[tuple[Wanted, list[Tool]]] = []
    while len(drawn) < count:
        wanted = draw_wanted(rng)
        if is_held_out(wanted.key):
            beside = [draw_wanted(rng).tool for _ in range(rng.randint(0, 2))]
            offered = list({tool.name: tool for tool in (*beside, wanted.tool)}.values())
            rng.shuffle(offered)
            drawn.append((wanted, offered))
    return drawn


async def share_called(
    client: AsyncOpenAI, model: str, tell: Callable[[str], None]
) -> tuple[int, int]:
    """Return how many calls were right, in name and arguments, and how many were asked for."""
    limit = asyncio.Semaphore(STREAMS)

    async def one(wanted: Wanted, offered: list[Tool]) -> bool:
        async with limit:
            called = await _called(client, model, wanted.question, offered)
        if called != (wanted.tool.name, wanted.arguments):
            tell(f"{wanted.question}: wanted {wanted.call}, got {called}")
            return False
        return True

    drawn = draw_calls()
    verdicts = await asyncio.gather(*(one(wanted, offered) for wanted, offered in drawn))
    return sum(verdicts), len(verdicts)


async def _called(client: AsyncOpenAI, model: str, question: str, offered: list[Tool]) -> Any:
    """Return the name and arguments of the first call, or what was said instead."""
    tools: Any = [{"type": "function", "function": _function(tool)} for tool in offered]
    answer = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        tools=tools,
        temperature=0,
        max_tokens=_ANSWER_TOKENS_MAX,
    )
    message = answer.choices[0].message
    if not message.tool_calls:
        return message.content
    function: Any = message.tool_calls[0]
    return function.function.name, json.loads(function.function.arguments)


def _function(tool: Tool) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in tool.parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": tool.name, "parameters": schema}
