"""What stands around answers of Anthropic's API: errors, and how rate limits stand."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar

import msgspec

from serving.contract.records import ModelRecord
from serving.gateway.dialects.base import ErrorReply
from serving.gateway.dialects.validation import ContextExceeded
from serving.gateway.errors import ApiError, Headers
from serving.limits.gcra import LimitStatus

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicErrorDetail(msgspec.Struct):
    """What went wrong."""

    type: str
    message: str


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    """An error."""

    error: AnthropicErrorDetail
    request_id: str


def context_exceeded(error: ContextExceeded) -> str:
    """Return what is told of a prompt and an answer that do not fit together, in the words that
    Anthropic's clients look for."""
    limit, asked = error.limit_tokens, error.requested_output_tokens or 0
    tokens = 0 if error.prompt is None else error.prompt.tokens
    if asked > limit:
        return f"max_tokens: {asked} > {limit}, which is the maximum of prompt and answer together"
    if 0 < tokens <= limit:
        return (
            f"input length and `max_tokens` exceed context limit: {tokens} + {asked} > {limit},"
            " decrease input length or `max_tokens` and try again"
        )
    length = f"{tokens} tokens > {limit} maximum" if tokens else f"more than {limit} tokens"
    return f"prompt is too long: {length}"


def status_of(error: ApiError) -> int:
    """Return the status that Anthropic gives such an error."""
    if error.kind == "insufficient_quota":
        return 402
    return 529 if error.status == 503 else error.status


def error_reply(error: ApiError, request_id: str) -> ErrorReply:
    """Return the error as the answer."""
    status = status_of(error)
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return ErrorReply(
        status,
        msgspec.json.encode(AnthropicError(AnthropicErrorDetail(kind, error.message), request_id)),
    )


def error_event(error: ApiError, request_id: str) -> bytes:
    """Return the error as the event that ends a stream which had begun."""
    return b"event: error\ndata: " + error_reply(error, request_id).body + b"\n\n"


LIMITED = (
    (b"requests", ("requests",)),
    (b"tokens", ("input_tokens", "output_tokens")),
    (b"input-tokens", ("input_tokens",)),
    (b"output-tokens", ("output_tokens",)),
)
"""What headers tell of, and which limits that is."""


def limit_headers(statuses: Sequence[LimitStatus], now: datetime) -> Headers:
    """Return how rate limits stand at a moment: of each kind that of which the least is left."""
    headers: list[tuple[bytes, bytes]] = []
    for name, measures in LIMITED:
        found = [one for one in statuses if one.check.measure in measures]
        if found:
            tightest = min(found, key=lambda one: one.remaining)
            resets_at = now + timedelta(seconds=tightest.reset_seconds)
            told = resets_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            headers += (
                (b"anthropic-ratelimit-%b-limit" % name, b"%d" % tightest.check.limit),
                (b"anthropic-ratelimit-%b-remaining" % name, b"%d" % tightest.remaining),
                (b"anthropic-ratelimit-%b-reset" % name, told.encode()),
            )
    return headers


class AnthropicModel(msgspec.Struct, tag_field="type", tag="model", kw_only=True):
    """A model; what Anthropic's own models may have besides is null."""

    id: str
    display_name: str
    created_at: datetime
    lifecycle: str = "active"
    max_input_tokens: int
    max_tokens: int | None
    capabilities: None = None
    line: None = None
    deprecated_at: None = None
    retires_at: None = None


class AnthropicModelPage(msgspec.Struct):
    """A list of models."""

    data: list[AnthropicModel]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


class AnthropicEnvelope:
    """What stands around answers of Anthropic's routes."""

    id_headers: ClassVar[tuple[bytes, ...]] = (b"x-request-id", b"request-id")

    def error_reply(self, error: ApiError, request_id: str) -> ErrorReply:
        """Return an error as the answer."""
        return error_reply(error, request_id)

    def limit_headers(self, statuses: Sequence[LimitStatus], now: datetime) -> Headers:
        """Return how the caller's rate limits stand."""
        return limit_headers(statuses, now)

    def model_list(self, offers: Sequence[tuple[str, ModelRecord]]) -> bytes:
        """Return the models that may be called, on one page: those of one organization are few."""
        cards = [_card(name, model) for name, model in offers]
        ids = (cards[0].id, cards[-1].id) if cards else (None, None)
        return msgspec.json.encode(AnthropicModelPage(cards, *ids))

    def model_card(self, name: str, model: ModelRecord) -> bytes:
        """Return one of them."""
        return msgspec.json.encode(_card(name, model))


def _card(name: str, model: ModelRecord) -> AnthropicModel:
    return AnthropicModel(
        id=name,
        display_name=name,
        created_at=model.created_at,
        max_input_tokens=model.context_tokens,
        max_tokens=model.output_tokens_max if model.task == "generate" else None,
    )
