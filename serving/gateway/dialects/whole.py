"""A whole answer of chat or completions, out of an engine's stream."""

import msgspec
from msgspec import UNSET

from serving.engine.events import EngineChoice, EngineEvent, TokenUsage
from serving.gateway.dialects.assembly import Assembly
from serving.gateway.dialects.dialect import Job
from serving.gateway.dialects.openai import Answer, usage_of
from serving.gateway.errors import JSON, ApiError, Headers

_encode = msgspec.json.Encoder().encode


class TextChoice(msgspec.Struct):
    """One answer of `/v1/completions`."""

    index: int
    text: str
    logprobs: msgspec.Raw
    finish_reason: str | None
    stop_reason: int | str | None


class Whole:
    """The rendering of a request that asked for a whole answer."""

    headers: Headers = JSON

    def __init__(self, job: Job, id_: str, object_: str) -> None:
        self._id = id_
        self._object = object_
        self._model_name = job.model_name
        self._tier = job.body or UNSET
        self._is_chat = job.work.operation == "chat"
        self._assembly = Assembly(job.work.choices)

    def take(self, events: list[EngineEvent]) -> bytes:
        """Add events to the answer. Raises AnswerBroken."""
        self._assembly.add(events)
        return b""

    def error_event(self, error: ApiError) -> bytes:
        """Return nothing: a whole answer begins at its end."""
        return b""

    def end(self, tokens: TokenUsage) -> bytes:
        """Return the client's body. Raises AnswerBroken when a choice has no ending."""
        choices = self._assembled()
        answer = Answer(
            id=self._id,
            object=self._object,
            created=self._assembly.created,
            model=self._model_name,
            choices=msgspec.Raw(_encode(choices)),
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
