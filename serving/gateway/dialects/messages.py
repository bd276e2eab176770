"""The messages of a chat: text only, each role with its own closed type."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

FunctionName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+\Z")]
Author = Annotated[str, Meta(max_length=128)]


class Closed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A type that refuses fields it does not know; absent fields stay absent for the engine."""


class TextPart(Closed, tag_field="type", tag="text"):
    """A piece of text."""

    text: str


class RefusalPart(Closed, tag_field="type", tag="refusal"):
    """A refusal that the assistant gave earlier."""

    refusal: str


TextParts = Annotated[list[TextPart], Meta(min_length=1, max_length=1_024)]
Text = str | TextParts
AssistantParts = Annotated[list[TextPart | RefusalPart], Meta(max_length=1_024)]
"""None at all is what instructor makes of a turn that only called tools."""


class FunctionCall(Closed):
    """A call that the model made, in its own words: any name, arguments that may break off.

    `parsed_arguments` is the official client's own reading of them.
    """

    name: str
    arguments: str
    parsed_arguments: Any = None


class ToolCall(Closed, tag_field="type", tag="function"):
    """One call of an assistant's message; `index` is where it stood in a stream."""

    id: str
    function: FunctionCall
    index: int | None = None


class SystemMessage(Closed, tag_field="role", tag="system"):
    """Instructions."""

    content: Text
    name: Author | None = None


class DeveloperMessage(Closed, tag_field="role", tag="developer"):
    """Instructions, in the newer word for them."""

    content: Text
    name: Author | None = None


class UserMessage(Closed, tag_field="role", tag="user"):
    """What the user says."""

    content: Text
    name: Author | None = None


class AssistantMessage(Closed, tag_field="role", tag="assistant"):
    """What the model said: all that an answer of ours holds is taken back.

    The last five are what clients add when they write such a message out: `parsed` is the content
    as they read it, `provider_specific_fields` is LiteLLM's own, the others are always empty.
    """

    content: str | AssistantParts | None = None
    refusal: str | None = None
    name: Author | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    parsed: Any = None
    provider_specific_fields: Any = None


class ToolMessage(Closed, tag_field="role", tag="tool"):
    """What a tool answered; `name` is the tool's."""

    content: Text
    tool_call_id: str
    name: Author | None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


def for_engine(message: Message) -> Message:
    """Return the message in the words that chat templates know."""
    if isinstance(message, DeveloperMessage):
        return SystemMessage(content=message.content, name=message.name)
    if isinstance(message, AssistantMessage):
        return _assistant_for_engine(message)
    return message


def _assistant_for_engine(message: AssistantMessage) -> AssistantMessage:
    calls = [
        ToolCall(call.id, FunctionCall(call.function.name, call.function.arguments))
        for call in message.tool_calls or ()
    ]
    return replace(
        message,
        content=None if message.content == [] else message.content,
        annotations=None,
        parsed=None,
        provider_specific_fields=None,
        tool_calls=calls or None,
    )
