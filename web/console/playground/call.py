"""What a browser may ask of the playground, bounded, and what the gateway is sent for it."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

CONTENT_CHARACTERS_MAX = 100_000
MESSAGES_MAX = 200


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Meta(max_length=CONTENT_CHARACTERS_MAX)]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question to one model, as the page sends it."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    project_id: Annotated[str, Meta(min_length=1, max_length=64)]
    messages: Annotated[tuple[Message, ...], Meta(min_length=1, max_length=MESSAGES_MAX)]
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    max_tokens: Annotated[int, Meta(ge=1, le=10**6)] | None = None


def parse_call(body: bytes) -> Call:
    """Parse the page's JSON. Raises msgspec.ValidationError naming the field at fault."""
    return msgspec.json.decode(body, type=Call)


def gateway_body(call: Call) -> dict[str, Any]:
    """Return the chat completion request: always a stream, always with its usage."""
    body: dict[str, Any] = {
        "model": call.model,
        "messages": [msgspec.to_builtins(message) for message in call.messages],
        "temperature": call.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if call.max_tokens is not None:
        body["max_tokens"] = call.max_tokens
    return body
