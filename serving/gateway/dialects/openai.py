"""What all of OpenAI's routes share: the shape of usage and of errors."""

import msgspec

from serving.engine.usage import CompletionDetails, PromptDetails, Tokens
from serving.gateway.dialects.dialect import ErrorReply
from serving.gateway.errors import ApiError


class Usage(msgspec.Struct):
    """Usage in OpenAI's words; every key always."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Answer(msgspec.Struct):
    """An answer, or the last event of one, as the client gets it."""

    id: str
    object: str
    created: int
    model: str
    choices: msgspec.Raw
    usage: Usage


class ErrorDetail(msgspec.Struct):
    """The four keys that every error has."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    """An error."""

    error: ErrorDetail


def usage_of(tokens: Tokens) -> Usage:
    """Say what was metered."""
    return Usage(
        prompt_tokens=tokens.input,
        completion_tokens=tokens.output,
        total_tokens=tokens.input + tokens.output,
        prompt_tokens_details=PromptDetails(tokens.cached_input),
        completion_tokens_details=CompletionDetails(tokens.reasoning),
    )


def detail_of(error: ApiError) -> ErrorDetail:
    """Return what is told of an error."""
    return ErrorDetail(error.message, error.kind, error.param, error.code)


def error_body(error: ApiError) -> bytes:
    """Return the error as JSON."""
    return msgspec.json.encode(ErrorBody(detail_of(error)))


def error_reply(error: ApiError) -> ErrorReply:
    """Return the error as the answer."""
    return ErrorReply(error.status, error_body(error))


def error_event(error: ApiError) -> bytes:
    """Return the error as the event that ends a stream which had begun."""
    return b"data: " + error_body(error) + b"\n\n"
