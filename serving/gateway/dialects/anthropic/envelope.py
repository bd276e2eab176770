"""What stands around answers in Anthropic's language."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

import msgspec

from serving.contract.records import ModelRecord
from serving.gateway.dialects.anthropic import errors, limits
from serving.gateway.dialects.dialect import ErrorReply
from serving.gateway.errors import ApiError, Headers
from serving.limits.gcra import LimitStatus


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
        return errors.error_reply(error, request_id)

    def limit_headers(self, standings: Sequence[LimitStatus], now: datetime) -> Headers:
        """Return how the caller's rate limits stand."""
        return limits.limit_headers(standings, now)

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
