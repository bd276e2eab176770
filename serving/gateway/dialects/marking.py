"""Marks the text of messages and tools, so that none of it becomes a control token.

See `serving/contract/text_guard.py`. Marked are content, names, what tools answered, the arguments
of calls, and descriptions of tools. Other words of tools are not, since a grammar would ask for the
mark: those that might hold a control token are looked at where the replica is known.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from serving.contract.text_guard import FIRST_CHARACTERS, MARK
from serving.gateway.dialects.openai.chat_request import (
    AssistantMessage,
    ChatFunctionCall,
    ChatToolCall,
    Message,
    ToolMessage,
)

REASONING = ("think", "/think")
"""Markers that templates look for in what the assistant said."""
VALUES = frozenset({"enum", "const", "default", "examples"})
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Of names that the client gave to the schemas that belong to them."""
_MAY_HOLD = re.compile(rb"<|\xef\xbd\x9c|\xef\xb7\x90|\[[A-Za-z/]")
"""In tools as JSON: what begins a control token, a bracket only where a list does not begin so."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?|[<\uff5c\ufdd0]+', re.DOTALL)
_CHARACTER = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)|[<\uff5c\[\ufdd0]", re.DOTALL)
_WHOLE = tuple((f"<{MARK}{name}>", f"<{name}>") for name in REASONING)


def marked(text: str) -> str:
    """Return the text with a mark behind each character that a control token may begin with, and
    without marks of the client's own."""
    if not text.isascii() and MARK in text:
        text = text.replace(MARK, "")
    for first in FIRST_CHARACTERS:
        if first in text:
            text = text.replace(first, first + MARK)
    return text


def marked_message(message: Message) -> Message:
    """Return the message with all its text marked."""
    content = _content(message.content)
    changed: dict[str, Any] = {} if content is message.content else {"content": content}
    if message.name is not None:
        changed["name"] = marked(message.name)
    if isinstance(message, ToolMessage):
        changed["tool_call_id"] = marked(message.tool_call_id)
    elif isinstance(message, AssistantMessage):
        changed["content"] = _content(message.content, _said)
        for name in ("refusal", "reasoning"):
            if (text := getattr(message, name)) is not None:
                changed[name] = marked(text)
        if message.tool_calls:
            changed["tool_calls"] = [_call(call) for call in message.tool_calls]
    return replace(message, **changed) if changed else message


def marked_tools(tools: Sequence[Any]) -> list[Any]:
    """Return tools with their descriptions marked, their own and those of their fields."""
    data = msgspec.json.encode(tools)
    if _MAY_HOLD.search(data) is None:
        return list(tools)
    return [_schema(tool) for tool in msgspec.json.decode(data)]


def unmarked_words(tools: Sequence[Any]) -> tuple[str, ...]:
    """Return the words of tools, once marked, that might hold a control token all the same."""
    words = {word for tool in tools if isinstance(tool, dict) for word in _words(tool)}
    return tuple(word for word in words if any(c in word for c in FIRST_CHARACTERS))


def _said(text: str) -> str:
    text = marked(text)
    for broken, whole in _WHOLE:
        text = text.replace(broken, whole)
    return text


def _content(content: Any, mark: Any = marked) -> Any:
    if isinstance(content, str):
        return mark(content)
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        name = "refusal" if hasattr(part, "refusal") else "text"
        parts.append(replace(part, **{name: mark(getattr(part, name))}))
    return parts


def _call(call: ChatToolCall) -> ChatToolCall:
    name, arguments = call.function.name, call.function.arguments
    return replace(
        call, id=marked(call.id), function=ChatFunctionCall(marked(name), _arguments(arguments))
    )


def _arguments(text: str) -> str:
    """Return a call's arguments, which engines decode, with what their strings say marked."""
    if "\\" not in text and MARK not in text and not any(c in text for c in FIRST_CHARACTERS):
        return text
    return _STRING.sub(_mark_string, text)


def _mark_string(found: re.Match[str]) -> str:
    """Mark a string of JSON, escapes included; what is outside of strings is no text."""
    return _CHARACTER.sub(_mark_character, found[0]) if found[0][0] == '"' else marked(found[0])


def _mark_character(found: re.Match[str]) -> str:
    escape = found[0]
    said = chr(int(escape[2:], 16)) if escape.startswith("\\u") else escape
    if said == MARK:
        return ""
    return escape + MARK if said in FIRST_CHARACTERS else escape


def _schema(value: Any, *, is_schema: bool = True) -> Any:
    """Return a part of a tool with its descriptions marked. A property may bear that name, and
    values are what the model has to repeat."""
    if isinstance(value, list):
        return [_schema(each, is_schema=is_schema) for each in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, each in value.items():
        if is_schema and key == "description" and isinstance(each, str):
            made[key] = marked(each)
        elif is_schema and key in VALUES:
            made[key] = each
        else:
            made[key] = _schema(each, is_schema=not (is_schema and key in MAPS))
    return made


def _words(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if not (key == "description" and MARK in value):
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from _words(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _words(each, name)
