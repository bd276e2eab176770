"""The messages of a chat: text only, each role with its own closed type."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

FunctionName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+\Z")]
Author = Annotated[str, Meta(max_length=128)]


class Closed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A type that refuses fields it does not know; absent fields stay absent for the engine."""


Hint = Any
"""Of a field that changes no answer here: taken, whatever it says, and not followed."""


class TextPart(Closed, tag_field="type", tag="text"):
    """A piece of text; every prefix is cached, so that hints on caching change nothing."""

    text: str
    cache_control: Hint = None
    prompt_cache_breakpoint: Hint = None


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

    The fields from `annotations` on are what clients add when they write such a message out:
    `parsed` is the content as they read it, `reasoning_content` another name for `reasoning`,
    `thinking_blocks` the same as Anthropic has it, `provider_specific_fields` LiteLLM's own; the
    others are always empty.
    """

    content: str | AssistantParts | None = None
    refusal: str | None = None
    name: Author | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    parsed: Hint = None
    provider_specific_fields: Hint = None
    reasoning_content: str | None = None
    thinking_blocks: Hint = None


class ToolMessage(Closed, tag_field="role", tag="tool"):
    """What a tool answered; `name` is the tool's."""

    content: Text
    tool_call_id: str
    name: Author | None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


def for_engine(message: Message) -> Message:
    """Return the message in the words that chat templates know."""
    if isinstance(message, AssistantMessage):
        return _assistant_for_engine(message)
    content = _without_hints(message.content)
    if isinstance(message, DeveloperMessage):
        return SystemMessage(content=content, name=message.name)
    return message if content is message.content else replace(message, content=content)


def _without_hints(content: Text) -> Text:
    if isinstance(content, str):
        return content
    return [TextPart(part.text) for part in content]


def _assistant_for_engine(message: AssistantMessage) -> AssistantMessage:
    calls = [
        ToolCall(call.id, FunctionCall(call.function.name, call.function.arguments))
        for call in message.tool_calls or ()
    ]
    content: Any = message.content or None
    if isinstance(content, list):
        content = [TextPart(part.text) if isinstance(part, TextPart) else part for part in content]
    return AssistantMessage(
        content="" if message.content == "" else content,
        refusal=message.refusal,
        name=message.name,
        reasoning=message.reasoning or message.reasoning_content,
        tool_calls=calls or None,
    )
