"""Tools of the simulated engine: it calls one unless told not to, or just answered by one.

Its arguments hold to the simple part of the function's schema: texts, whole numbers, truth values.
"""

from typing import Any, Literal

import msgspec

PIECE_CHARACTERS = 4
"""What one token writes of the arguments."""


class CalledFunction(msgspec.Struct, frozen=True):
    """A function's name, and the arguments where it was called."""

    name: str
    arguments: str | None = None


class Call(msgspec.Struct, frozen=True):
    """A call in the history; like vLLM's templates it wants its type said."""

    function: CalledFunction
    type: Literal["function"]


class Function(msgspec.Struct, frozen=True):
    """A function that may be called."""

    name: str
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct, frozen=True):
    """A tool."""

    function: Function
    type: Literal["function"]


class NamedTool(msgspec.Struct, frozen=True):
    """The choice of one tool."""

    function: CalledFunction
    type: Literal["function"]


def chosen(
    tools: list[Tool] | None, choice: str | NamedTool | None, *, was_answered: bool
) -> Function | None:
    """Return the function to call, if one is."""
    if not tools or choice == "none":
        return None
    if isinstance(choice, NamedTool):
        return next((t.function for t in tools if t.function.name == choice.function.name), None)
    return None if was_answered and choice != "required" else tools[0].function


def prompt_text(tools: list[Tool] | None) -> str:
    """Return what a template would write of the tools."""
    return msgspec.json.encode(tools).decode() if tools else ""


def arguments_of(function: Function, words: list[str]) -> list[str]:
    """Return a call's arguments as JSON in pieces, one a token; `words` make the texts."""
    properties = (function.parameters or {}).get("properties", {})
    made = {
        name: _value(schema, words[place % len(words)].strip())
        for place, (name, schema) in enumerate(properties.items())
    }
    text = msgspec.json.encode(made).decode()
    return [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]


def _value(schema: Any, word: str) -> object:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return {"integer": len(word), "number": len(word), "boolean": True}.get(str(kind), word)
