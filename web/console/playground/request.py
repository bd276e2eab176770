"""The playground's request from the browser, with its limits, and the request to the gateway."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

CONTENT_CHARACTERS_MAX = 100_000
MESSAGES_MAX = 200
TOOLS_MAX = 128
Text = Annotated[str, Meta(max_length=CONTENT_CHARACTERS_MAX)]
Tools = Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=TOOLS_MAX)]


class ToolCallFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that the model called."""

    name: Text
    arguments: Text


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call in the conversation."""

    id: Annotated[str, Meta(max_length=200)]
    type: Literal["function"]
    function: ToolCallFunction


ToolCalls = Annotated[tuple[ToolCall, ...], Meta(min_length=1, max_length=TOOLS_MAX)]


class PlaygroundMessage(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One message of the conversation; `tool_call_id` is the call that a tool's result is for."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text | None
    tool_calls: ToolCalls | None = None
    tool_call_id: Annotated[str, Meta(max_length=200)] | None = None


class PlaygroundRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request to one model, as the page sends it. Tools and the response format are passed on
    unchanged: the gateway validates them."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    project_id: Annotated[str, Meta(min_length=1, max_length=64)]
    messages: Annotated[tuple[PlaygroundMessage, ...], Meta(min_length=1, max_length=MESSAGES_MAX)]
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    max_tokens: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    tools: Tools | None = None
    response_format: dict[str, Any] | None = None


def parse_request(body: bytes) -> PlaygroundRequest:
    """Parse the page's JSON. Raises msgspec.ValidationError naming the invalid field."""
    return msgspec.json.decode(body, type=PlaygroundRequest)


def gateway_body(call: PlaygroundRequest) -> dict[str, Any]:
    """Return the chat completion request: always streamed, always with usage."""
    body: dict[str, Any] = {
        "model": call.model,
        "messages": [msgspec.to_builtins(message) for message in call.messages],
        "temperature": call.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    for name in ("max_tokens", "tools", "response_format"):
        if (value := getattr(call, name)) is not None:
            body[name] = value
    return body
