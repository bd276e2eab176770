"""What all of OpenAI's routes share: the shape of usage and of errors."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from serving.contract.records import ModelRecord, Task
from serving.contract.units import Tier
from serving.engine.events import CompletionTokensDetails, PromptTokensDetails, TokenUsage
from serving.gateway.dialects.base import ErrorReply
from serving.gateway.errors import ApiError, Headers
from serving.limits.gcra import LimitStatus

LIMITED = (
    (b"requests", ("requests",)),
    (b"tokens", ("input_tokens", "output_tokens")),
)
"""What headers tell of, and which limits that is."""


class OpenAIUsage(msgspec.Struct):
    """Usage in OpenAI's words; every key always."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class CompletionObject(msgspec.Struct):
    """An answer, or the last event of one, as the client gets it."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[Any]
    usage: OpenAIUsage
    service_tier: Tier | UnsetType = UNSET
    """Where the request names one."""


class OpenAIErrorDetail(msgspec.Struct):
    """The four keys that every error has, and what figures there are."""

    message: str
    type: str
    param: str | None
    code: str | None
    metadata: Mapping[str, Any] | UnsetType = UNSET


class OpenAIError(msgspec.Struct):
    """An error."""

    error: OpenAIErrorDetail


class ModelObject(msgspec.Struct):
    """A model in OpenAI's words, and in one of ours what it is for."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "penstock"
    task: Task = "generate"


class ModelList(msgspec.Struct):
    """All models of one organization."""

    data: list[ModelObject]
    object: str = "list"


def usage_of(tokens: TokenUsage) -> OpenAIUsage:
    """Say what was metered."""
    return OpenAIUsage(
        prompt_tokens=tokens.input,
        completion_tokens=tokens.output,
        total_tokens=tokens.input + tokens.output,
        prompt_tokens_details=PromptTokensDetails(tokens.cached_input),
        completion_tokens_details=CompletionTokensDetails(tokens.reasoning),
    )


def detail_of(error: ApiError) -> OpenAIErrorDetail:
    """Return what is told of an error."""
    figures = UNSET if error.metadata is None else error.metadata
    return OpenAIErrorDetail(error.message, error.kind, error.param, error.code, figures)


def error_body(error: ApiError) -> bytes:
    """Return the error as JSON."""
    return msgspec.json.encode(OpenAIError(detail_of(error)))


def error_reply(error: ApiError) -> ErrorReply:
    """Return the error as the answer."""
    return ErrorReply(error.status, error_body(error))


class OpenAIEnvelope:
    """What stands around answers of OpenAI's routes."""

    id_headers: ClassVar[tuple[bytes, ...]] = (b"x-request-id",)

    def error_reply(self, error: ApiError, request_id: str) -> ErrorReply:
        """Return an error as the answer."""
        return error_reply(error)

    def limit_headers(self, statuses: Sequence[LimitStatus], now: datetime) -> Headers:
        """Return how the caller's rate limits stand."""
        return limit_headers(statuses)

    def model_list(self, offers: Sequence[tuple[str, ModelRecord]]) -> bytes:
        """Return the models that may be called."""
        return msgspec.json.encode(ModelList([_card(name, model) for name, model in offers]))

    def model_card(self, name: str, model: ModelRecord) -> bytes:
        """Return one of them."""
        return msgspec.json.encode(_card(name, model))


def _card(name: str, model: ModelRecord) -> ModelObject:
    return ModelObject(name, int(model.created_at.timestamp()), task=model.task)


def error_event(error: ApiError) -> bytes:
    """Return the error as the event that ends a stream which had begun."""
    return b"data: " + error_body(error) + b"\n\n"


def limit_headers(statuses: Sequence[LimitStatus]) -> Headers:
    """Return how rate limits stand: of those on requests and of those on tokens that of which the
    least is left."""
    headers: list[tuple[bytes, bytes]] = []
    for name, measures in LIMITED:
        found = [one for one in statuses if one.check.measure in measures]
        if found:
            tightest = min(found, key=lambda one: one.remaining)
            headers += (
                (b"x-ratelimit-limit-" + name, b"%d" % tightest.check.limit),
                (b"x-ratelimit-remaining-" + name, b"%d" % tightest.remaining),
                (b"x-ratelimit-reset-" + name, duration(tightest.reset_seconds).encode()),
            )
    return headers


def duration(seconds: float) -> str:
    """Return a time as OpenAI writes it: `12ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1_000)}ms"
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
