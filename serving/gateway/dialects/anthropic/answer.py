"""An answer of Messages: its blocks, its usage, and the whole of it."""

from typing import Any

import msgspec

from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.dialects.assembly import Assembly
from serving.gateway.dialects.dialect import Job
from serving.gateway.dialects.passages import Passage, passages_of
from serving.gateway.errors import JSON, ApiError, Headers

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


class Text(msgspec.Struct, tag_field="type", tag="text"):
    """What the model says."""

    text: str = ""


class Thinking(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thinks; nobody signs it."""

    thinking: str = ""
    signature: str = ""


class ToolUse(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


Block = Text | Thinking | ToolUse


class OutputDetails(msgspec.Struct):
    """Of the output: what was thought."""

    thinking_tokens: int


class Usage(msgspec.Struct):
    """What was metered: here `input_tokens` are those that the cache had not."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetails
    service_tier: str = "standard"


class Message(msgspec.Struct, kw_only=True):
    """The whole of an answer."""

    id: str
    type: str = "message"
    role: str = "assistant"
    model: str
    content: list[Block] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage


def usage_of(tokens: TokenUsage) -> Usage:
    """Say what was metered."""
    return Usage(
        input_tokens=tokens.input - tokens.cached_input,
        cache_creation_input_tokens=0,
        cache_read_input_tokens=tokens.cached_input,
        output_tokens=tokens.output,
        output_tokens_details=OutputDetails(tokens.reasoning),
    )


def stop_of(finish: str | None, stop: int | str | None, *, calls: bool) -> tuple[str, str | None]:
    """Return why an answer ended, and the client's own words that ended it."""
    if finish == "stop" and isinstance(stop, str):
        return "stop_sequence", stop
    if finish == "stop" and calls:
        return "tool_use", None
    return STOP_REASONS.get(finish or "", "end_turn"), None


def block_of(passage: Passage) -> Block:
    """Return a passage as a block."""
    if passage.kind == "call":
        return ToolUse(passage.id, passage.name, arguments_of(passage.text))
    return Thinking(passage.text) if passage.kind == "reasoning" else Text(passage.text)


def arguments_of(text: str) -> dict[str, Any]:
    """Return a call's arguments; nothing where they broke off or are no object."""
    try:
        arguments = _decode(text)
    except msgspec.DecodeError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


class WholeMessage:
    """The rendering of a request that asked for a whole answer."""

    headers: Headers = JSON

    def __init__(self, job: Job, request_id: str) -> None:
        self._id = f"msg_{request_id}"
        self._model_name = job.model_name
        self._assembly = Assembly(job.work.choices)

    def take(self, events: list[EngineEvent]) -> bytes:
        """Add events to the answer. Raises AnswerBroken."""
        self._assembly.add(events)
        return b""

    def error_event(self, error: ApiError) -> bytes:
        """Return nothing: a whole answer begins at its end."""
        return b""

    def end(self, tokens: TokenUsage) -> bytes:
        """Return the client's body. Raises AnswerBroken when there is no ending."""
        choice = self._assembly.chat()[0]
        calls = bool(choice.message.calls)
        reason, sequence = stop_of(choice.finish_reason, choice.stop_reason, calls=calls)
        message = Message(
            id=self._id,
            model=self._model_name,
            content=[block_of(passage) for passage in passages_of(choice)],
            stop_reason=reason,
            stop_sequence=sequence,
            usage=usage_of(tokens),
        )
        return _encode(message)
