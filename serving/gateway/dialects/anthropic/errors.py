"""Errors in Anthropic's words."""

import msgspec

from serving.gateway.dialects.dialect import ErrorReply
from serving.gateway.dialects.refusals import ContextExceeded
from serving.gateway.errors import ApiError

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


class Detail(msgspec.Struct):
    """What went wrong."""

    type: str
    message: str


class Body(msgspec.Struct, tag_field="type", tag="error"):
    """An error."""

    error: Detail
    request_id: str


def context_exceeded(error: ContextExceeded) -> str:
    """Return what is told of a prompt and an answer that do not fit together, in the words that
    Anthropic's clients look for."""
    limit, asked = error.limit_tokens, error.asked_tokens or 0
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
    return ErrorReply(status, msgspec.json.encode(Body(Detail(kind, error.message), request_id)))


def error_event(error: ApiError, request_id: str) -> bytes:
    """Return the error as the event that ends a stream which had begun."""
    return b"event: error\ndata: " + error_reply(error, request_id).body + b"\n\n"
