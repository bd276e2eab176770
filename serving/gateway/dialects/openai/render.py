"""Streams and whole answers of chat and completions, under our own id and the client's model name.

Engines write the same head on each event, `{"id":…,"object":…,"created":…,"model":…`, so it is
learnt from the first and exchanged as bytes.
"""

import re
import time
from typing import Any

import msgspec
from msgspec import UNSET

from serving.contract.codec import NOT_JSON
from serving.contract.units import Tier
from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineChoice, EngineEvent, TokenUsage
from serving.gateway.dialects.accumulate import AnswerAccumulator
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.openai import envelope
from serving.gateway.dialects.openai.envelope import CompletionObject, usage_of
from serving.gateway.errors import JSON, ApiError, Headers

DATA, END = b"data: ", b"\n\n"
_HEAD = re.compile(
    rb'\{"id":"[^"\\]*","object":("[a-z._]*"),"created":(\d{1,12}),"model":"[^"\\]*"'
)


class ChunkHeadRewriter:
    """The head of one stream; `created` is the engine's, our clock's until the first event. `tier`
    is told where the request names one."""

    def __init__(self, id_: str, model_name: str, tier: Tier | None = None) -> None:
        self.created = int(time.time())
        self._own = {"id": id_, "model": model_name}
        if tier is not None:
            self._own["service_tier"] = tier
        self._engine_head: bytes | None = None
        self._own_head = b""

    def write(self, events: list[EngineEvent]) -> bytes:
        """Return events of the stream, each under our head. Raises InvalidEngineResponse when one
        is not JSON."""
        if self._engine_head is None:
            self._engine_head = self._learn(events[0].raw)
        head, own, size = self._engine_head, self._own_head, len(self._engine_head)
        if size:
            rests = [event.raw[size:] for event in events if event.raw.startswith(head)]
            if len(rests) == len(events):
                return own + (END + own).join(rests) + END
        parts: list[bytes] = []
        for event in events:
            if size and event.raw.startswith(head):
                parts += (own, event.raw[size:], END)
            else:
                parts += (DATA, self._write_anew(event.raw), END)
        return b"".join(parts)

    def _learn(self, chunk: bytes) -> bytes:
        match = _HEAD.match(chunk)
        if match is None:
            return b""
        kept = {"id": "", "object": msgspec.Raw(match[1]), "created": msgspec.Raw(match[2])}
        self._own_head = DATA + msgspec.json.encode(kept | self._own)[:-1]
        self.created = int(match[2])
        return match[0]

    def _write_anew(self, chunk: bytes) -> bytes:
        try:
            parsed = msgspec.json.decode(chunk, type=dict[str, Any])
        except NOT_JSON as error:
            raise InvalidEngineResponse("an event is not JSON") from error
        return msgspec.json.encode(parsed | self._own)


HEADERS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
DONE = b"data: [DONE]\n\n"


class ChunkStreamRenderer:
    """The rendering of a request that asked for a stream."""

    headers = HEADERS

    def __init__(self, inference: InferenceRequest, id_: str, object_: str) -> None:
        self._id = id_
        self._object = object_
        self._model_name = inference.model_name
        self._wants_usage = inference.include_usage
        self._tier: Tier | None = inference.echo
        self._heading = ChunkHeadRewriter(id_, inference.model_name, self._tier)

    def render(self, events: list[EngineEvent]) -> bytes:
        """Return the events under our own head. Raises InvalidEngineResponse."""
        return self._heading.write(events)

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return the events that follow once usage is durable."""
        if not self._wants_usage:
            return DONE
        last = CompletionObject(
            id=self._id,
            object=self._object,
            created=self._heading.created,
            model=self._model_name,
            choices=(),
            usage=usage_of(tokens),
            service_tier=self._tier or UNSET,
        )
        return DATA + msgspec.json.encode(last) + END + DONE

    def error_event(self, error: ApiError) -> bytes:
        """Return an error as the end of the stream."""
        return envelope.error_event(error)


_encode = msgspec.json.Encoder().encode


class TextChoice(msgspec.Struct):
    """One answer of `/v1/completions`."""

    index: int
    text: str
    logprobs: msgspec.Raw
    finish_reason: str | None
    stop_reason: int | str | None


class CompletionRenderer:
    """The rendering of a request that asked for a whole answer."""

    headers: Headers = JSON

    def __init__(self, inference: InferenceRequest, id_: str, object_: str) -> None:
        self._id = id_
        self._object = object_
        self._model_name = inference.model_name
        self._tier = inference.echo or UNSET
        self._is_chat = inference.engine_request.operation == "chat"
        self._assembly = AnswerAccumulator(inference.engine_request.choices)

    def render(self, events: list[EngineEvent]) -> bytes:
        """Add events to the answer. Raises InvalidEngineResponse."""
        self._assembly.add(events)
        return b""

    def error_event(self, error: ApiError) -> bytes:
        """Return nothing: a whole answer begins at its end."""
        return b""

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return the client's body. Raises InvalidEngineResponse when a choice has no ending."""
        answer = CompletionObject(
            id=self._id,
            object=self._object,
            created=self._assembly.created,
            model=self._model_name,
            choices=self._assembled(),
            usage=usage_of(tokens),
            service_tier=self._tier,
        )
        return _encode(answer)

    def _assembled(self) -> list[EngineChoice] | list[TextChoice]:
        if self._is_chat:
            return self._assembly.chat()
        return [
            TextChoice(index, each.text, each.logprobs, each.finish_reason, each.stop_reason)
            for index, each in enumerate(self._assembly.ended())
        ]
