"""A stream to the client: every event under our own head, as it comes."""

import msgspec
from msgspec import UNSET

from serving.contract.units import Tier
from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.dialects import openai
from serving.gateway.dialects.dialect import Job
from serving.gateway.dialects.heading import DATA, END, Heading
from serving.gateway.dialects.openai import Answer, usage_of
from serving.gateway.errors import ApiError, Headers

HEADERS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
DONE = b"data: [DONE]\n\n"


class Stream:
    """The rendering of a request that asked for a stream."""

    headers = HEADERS

    def __init__(self, job: Job, id_: str, object_: str) -> None:
        self._id = id_
        self._object = object_
        self._model_name = job.model_name
        self._wants_usage = job.wants_usage
        self._tier: Tier | None = job.body
        self._heading = Heading(id_, job.model_name, self._tier)

    def take(self, events: list[EngineEvent]) -> bytes:
        """Return the events under our own head. Raises AnswerBroken."""
        return self._heading.write(events)

    def end(self, tokens: TokenUsage) -> bytes:
        """Return the events that follow once usage is durable."""
        if not self._wants_usage:
            return DONE
        last = Answer(
            id=self._id,
            object=self._object,
            created=self._heading.created,
            model=self._model_name,
            choices=msgspec.Raw(b"[]"),
            usage=usage_of(tokens),
            service_tier=self._tier or UNSET,
        )
        return DATA + msgspec.json.encode(last) + END + DONE

    def error_event(self, error: ApiError) -> bytes:
        """Return an error as the end of the stream."""
        return openai.error_event(error)
