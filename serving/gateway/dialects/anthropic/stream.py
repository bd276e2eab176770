"""An answer of Messages as it comes: a message starts, blocks start and stop, the message stops."""

import msgspec

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import NO_TOKENS, EngineEvent, TokenUsage, read_usage
from serving.gateway.dialects.anthropic.answer import (
    Block,
    Message,
    Text,
    Thinking,
    ToolUse,
    Usage,
    stop_of,
    usage_of,
)
from serving.gateway.dialects.anthropic.errors import error_event
from serving.gateway.dialects.dialect import Job
from serving.gateway.dialects.passages import Kind, Passage, Passages, Step
from serving.gateway.dialects.stream import HEADERS
from serving.gateway.errors import ApiError

_encode = msgspec.json.Encoder().encode
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
DELTAS: dict[Kind, tuple[str, str]] = {
    "content": ("text_delta", "text"),
    "refusal": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
"""By the kind of a passage: the kind of its deltas, and what they call their text."""


class Started(msgspec.Struct, tag_field="type", tag="message_start"):
    """The first event: who speaks, and what it read."""

    message: Message


class BlockStarted(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block begins."""

    index: int
    content_block: Block


class Ending(msgspec.Struct):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class Ended(msgspec.Struct, tag_field="type", tag="message_delta"):
    """The last event but one: why it ended, and what it took."""

    delta: Ending
    usage: Usage


class StreamedMessage:
    """The rendering of a request that asked for a stream."""

    headers = HEADERS

    def __init__(self, job: Job, request_id: str) -> None:
        self._request_id = request_id
        self._model_name = job.model_name
        self._passages = Passages()
        self._has_begun = False
        self._head = b""

    def take(self, events: list[EngineEvent]) -> bytes:
        """Return what these events are to the client. Raises AnswerBroken."""
        told = self._opening(events[0].usage)
        for event in events:
            for part in event.chunk().choices:
                if part.index:
                    raise InvalidEngineResponse("a choice that nobody asked for")
                told += [self._tell(step) for step in self._passages.read(part)]
        return b"".join(told)

    def end(self, tokens: TokenUsage) -> bytes:
        """Return the last events. Raises AnswerBroken when there was no ending."""
        told = self._opening(None)
        told += [self._tell(step) for step in self._passages.end()]
        passages = self._passages
        calls = any(passage.kind == "call" for passage in passages.closed)
        reason, sequence = stop_of(passages.finish_reason, passages.stop_reason, calls=calls)
        told.append(_event("message_delta", Ended(Ending(reason, sequence), usage_of(tokens))))
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
        message = Message(
            id=f"msg_{self._request_id}", model=self._model_name, usage=usage_of(tokens)
        )
        return [_event("message_start", Started(message)), PING]

    def _tell(self, step: Step) -> bytes:
        if step.does == "go_on":
            return self._head + _encode(step.text) + b"}}\n\n"
        if step.does == "open":
            return self._open(step.passage)
        kind = "content_block_stop"
        return b'event: %b\ndata: {"type":"%b","index":%d}\n\n' % (
            kind.encode(),
            kind.encode(),
            step.passage.place,
        )

    def _open(self, passage: Passage) -> bytes:
        kind, name = DELTAS[passage.kind]
        self._head = (
            f'event: content_block_delta\ndata: {{"type":"content_block_delta",'
            f'"index":{passage.place},"delta":{{"type":"{kind}","{name}":'
        ).encode()
        return _event("content_block_start", BlockStarted(passage.place, _empty(passage)))


def _empty(passage: Passage) -> Block:
    if passage.kind == "call":
        return ToolUse(passage.id, passage.name, {})
    return Thinking() if passage.kind == "reasoning" else Text()


def _event(kind: str, event: Started | BlockStarted | Ended) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event))
