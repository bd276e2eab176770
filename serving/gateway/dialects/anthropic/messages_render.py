"""The answer of Messages: its blocks and its usage, whole, or as events: a message starts,
blocks start and stop, the message stops."""

from typing import Any

import msgspec

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import NO_TOKENS, EngineEvent, TokenUsage, read_usage
from serving.gateway.dialects.accumulate import (
    AnswerAccumulator,
    BlockEvent,
    ContentBlock,
    ContentBlockSplitter,
    Kind,
    content_blocks_of,
)
from serving.gateway.dialects.anthropic.envelope import error_event
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.openai.render import HEADERS
from serving.gateway.errors import JSON, ApiError, Headers

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


class OutputTextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """What the model says."""

    text: str = ""


class OutputThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thinks; nobody signs it."""

    thinking: str = ""
    signature: str = ""


class OutputToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


Block = OutputTextBlock | OutputThinkingBlock | OutputToolUseBlock


class AnthropicOutputDetails(msgspec.Struct):
    """Of the output: what was thought."""

    thinking_tokens: int


class AnthropicUsage(msgspec.Struct):
    """What was metered: here `input_tokens` are those that the cache had not."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: AnthropicOutputDetails
    service_tier: str = "standard"


class MessageObject(msgspec.Struct, kw_only=True):
    """The whole of an answer."""

    id: str
    type: str = "message"
    role: str = "assistant"
    model: str
    content: list[Block] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: AnthropicUsage


def usage_of(tokens: TokenUsage) -> AnthropicUsage:
    """Say what was metered."""
    return AnthropicUsage(
        input_tokens=tokens.input - tokens.cached_input,
        cache_creation_input_tokens=0,
        cache_read_input_tokens=tokens.cached_input,
        output_tokens=tokens.output,
        output_tokens_details=AnthropicOutputDetails(tokens.reasoning),
    )


def stop_of(finish: str | None, stop: int | str | None, *, calls: bool) -> tuple[str, str | None]:
    """Return why an answer ended, and the client's own words that ended it."""
    if finish == "stop" and isinstance(stop, str):
        return "stop_sequence", stop
    if finish == "stop" and calls:
        return "tool_use", None
    return STOP_REASONS.get(finish or "", "end_turn"), None


def block_of(passage: ContentBlock) -> Block:
    """Return a passage as a block."""
    if passage.kind == "call":
        return OutputToolUseBlock(passage.id, passage.name, arguments_of(passage.text))
    return (
        OutputThinkingBlock(passage.text)
        if passage.kind == "reasoning"
        else OutputTextBlock(passage.text)
    )


def arguments_of(text: str) -> dict[str, Any]:
    """Return a call's arguments; nothing where they broke off or are no object."""
    try:
        arguments = _decode(text)
    except msgspec.DecodeError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


class MessageRenderer:
    """The rendering of a request that asked for a whole answer."""

    headers: Headers = JSON

    def __init__(self, inference: InferenceRequest, request_id: str) -> None:
        self._id = f"msg_{request_id}"
        self._model_name = inference.model_name
        self._assembly = AnswerAccumulator(inference.engine_request.choices)

    def render(self, events: list[EngineEvent]) -> bytes:
        """Add events to the answer. Raises InvalidEngineResponse."""
        self._assembly.add(events)
        return b""

    def error_event(self, error: ApiError) -> bytes:
        """Return nothing: a whole answer begins at its end."""
        return b""

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return the client's body. Raises InvalidEngineResponse when there is no ending."""
        choice = self._assembly.chat()[0]
        calls = bool(choice.message.calls)
        reason, sequence = stop_of(choice.finish_reason, choice.stop_reason, calls=calls)
        message = MessageObject(
            id=self._id,
            model=self._model_name,
            content=[block_of(passage) for passage in content_blocks_of(choice)],
            stop_reason=reason,
            stop_sequence=sequence,
            usage=usage_of(tokens),
        )
        return _encode(message)


PING = b'event: ping\ndata: {"type":"ping"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
DELTAS: dict[Kind, tuple[str, str]] = {
    "content": ("text_delta", "text"),
    "refusal": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
"""By the kind of a passage: the kind of its deltas, and what they call their text."""


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """The first event: who speaks, and what it read."""

    message: MessageObject


class ContentBlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block begins."""

    index: int
    content_block: Block


class MessageStopInfo(msgspec.Struct):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    """The last event but one: why it ended, and what it took."""

    delta: MessageStopInfo
    usage: AnthropicUsage


class MessageStreamRenderer:
    """The rendering of a request that asked for a stream."""

    headers = HEADERS

    def __init__(self, inference: InferenceRequest, request_id: str) -> None:
        self._request_id = request_id
        self._model_name = inference.model_name
        self._passages = ContentBlockSplitter()
        self._has_begun = False
        self._head = b""

    def render(self, events: list[EngineEvent]) -> bytes:
        """Return what these events are to the client. Raises InvalidEngineResponse."""
        told = self._opening(events[0].usage)
        for event in events:
            for part in event.chunk().choices:
                if part.index:
                    raise InvalidEngineResponse("a choice that nobody asked for")
                told += [self._tell(step) for step in self._passages.read(part)]
        return b"".join(told)

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return the last events. Raises InvalidEngineResponse when there was no ending."""
        told = self._opening(None)
        told += [self._tell(step) for step in self._passages.finish()]
        passages = self._passages
        calls = any(passage.kind == "call" for passage in passages.closed)
        reason, sequence = stop_of(passages.finish_reason, passages.stop_reason, calls=calls)
        told.append(
            _event(
                "message_delta", MessageDelta(MessageStopInfo(reason, sequence), usage_of(tokens))
            )
        )
        return b"".join(told) + STOP

    def error_event(self, error: ApiError) -> bytes:
        """Return an error as the end of the stream."""
        return error_event(error, self._request_id)

    def _opening(self, usage: bytes | None) -> list[bytes]:
        """Return the first events, once; the prompt's length is known from the first chunk on."""
        if self._has_begun:
            return []
        self._has_begun = True
        tokens = NO_TOKENS if usage is None else read_usage(usage)
        message = MessageObject(
            id=f"msg_{self._request_id}", model=self._model_name, usage=usage_of(tokens)
        )
        return [_event("message_start", MessageStart(message)), PING]

    def _tell(self, step: BlockEvent) -> bytes:
        if step.action == "go_on":
            return self._head + _encode(step.text) + b"}}\n\n"
        if step.action == "open":
            return self._open(step.block)
        kind = "content_block_stop"
        return b'event: %b\ndata: {"type":"%b","index":%d}\n\n' % (
            kind.encode(),
            kind.encode(),
            step.block.index,
        )

    def _open(self, passage: ContentBlock) -> bytes:
        kind, name = DELTAS[passage.kind]
        self._head = (
            f'event: content_block_delta\ndata: {{"type":"content_block_delta",'
            f'"index":{passage.index},"delta":{{"type":"{kind}","{name}":'
        ).encode()
        return _event("content_block_start", ContentBlockStart(passage.index, _empty(passage)))


def _empty(passage: ContentBlock) -> Block:
    if passage.kind == "call":
        return OutputToolUseBlock(passage.id, passage.name, {})
    return OutputThinkingBlock() if passage.kind == "reasoning" else OutputTextBlock()


def _event(kind: str, event: MessageStart | ContentBlockStart | MessageDelta) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event))
