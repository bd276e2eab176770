"""The messages of a chat: text only, each role with its own closed type."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

ToolCallId = Annotated[str, Meta(max_length=128)]
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
AssistantParts = Annotated[list[TextPart | RefusalPart], Meta(min_length=1, max_length=1_024)]


class FunctionCall(Closed):
    """A call that the model made: the arguments are JSON as text."""

    name: FunctionName
    arguments: str


class ToolCall(Closed):
    """One call of an assistant's message."""

    id: ToolCallId
    function: FunctionCall
    type: Literal["function"] = "function"


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
    """What the model said."""

    content: str | AssistantParts | None = None
    refusal: str | None = None
    name: Author | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=128)] | None = None


class ToolMessage(Closed, tag_field="role", tag="tool"):
    """What a tool answered."""

    content: Text
    tool_call_id: ToolCallId


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


def for_engine(message: Message) -> Message:
    """Return the message in the words that chat templates know."""
    if isinstance(message, DeveloperMessage):
        return SystemMessage(content=message.content, name=message.name)
    return message
