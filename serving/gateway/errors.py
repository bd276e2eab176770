"""What a client can be told besides an answer. One class carries the facts; dialects render them.

ApiError
├── BadRequest             400  the request is wrong: change it
├── Unauthorized           401  one body for every reason
├── Forbidden              403  the key may not do this
├── OrganizationSuspended  403  its organization is suspended; the key is good
├── NotFound               404  no such model, or not yours: the same body; or not for this route
├── MethodNotAllowed       405  `allow` says which
├── PayloadTooLarge        413
├── UnsupportedMediaType   415
├── HeadersTooLarge        431
├── InsufficientQuota      429  a retry is useless
├── RateLimited            429  a limit by the minute, or on what runs at once: come back then
├── TooManyQueuedRequests  429  of the organization's own: come back in `retry_after_seconds`
├── ServiceUnavailable     503  our capacity: come back in `retry_after_seconds`
├── DeadlineExceeded       504  our deadline
├── IdempotencyConflict    409  the key is another request's, or its answer is not to be had
└── IdempotencyStorageFull 429  of keys and their answers
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from serving.contract.idempotency import (
    CLAIMS_MAX,
    HEADER,
    HOURS_KEPT,
    KEPT_BYTES_MAX,
    ClaimStorageFull,
)
from serving.contract.records import Task

Headers = Sequence[tuple[bytes, bytes]]
JSON: Headers = ((b"content-type", b"application/json"),)


class ApiError(Exception):
    """An answer that is not a completion."""

    status = 500
    kind = "api_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Headers | None = None,
        metadata: Mapping[str, Any] | None = None,
        quoted: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.quoted = quoted
        """The part of the message that repeats what the client sent."""
        self.code = code
        self.param = param
        self.headers = headers or ()
        self.metadata = metadata
        """Figures for programs, where there are any."""


class BadRequest(ApiError):
    """The request is wrong: `param` names the field."""

    status = 400
    kind = "invalid_request_error"


class Unauthorized(ApiError):
    """The key is missing, malformed, unknown, revoked, expired, or not for this network."""

    status = 401
    kind = "invalid_request_error"

    def __init__(self) -> None:
        headers = [(b"www-authenticate", b"Bearer")]
        super().__init__("Incorrect API key provided.", code="invalid_api_key", headers=headers)


class Forbidden(ApiError):
    """The key is good but lacks the scope."""

    status = 403
    kind = "permission_denied"


class OrganizationSuspended(Forbidden):
    """The key is good; nothing is served to its organization until it is reinstated."""

    def __init__(self) -> None:
        message = (
            "Your organization is suspended, so its API keys are refused. Its Billing page in the"
            " console says why and what to do; the keys work again as soon as it is reinstated."
        )
        super().__init__(message, code="organization_suspended")


class NotFound(ApiError):
    """There is no such thing, or it is not this organization's."""

    status = 404
    kind = "invalid_request_error"


class ModelNotFound(NotFound):
    """Unknown and not granted look the same."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The model '{name}' does not exist or you do not have access to it.",
            code="model_not_found",
            param="model",
            quoted=f" '{name}'",
        )


class ModelTaskMismatch(NotFound):
    """The model is there, and not for what this route does."""

    def __init__(self, name: str, task: Task) -> None:
        super().__init__(_FOR[task].format(name), code="model_not_supported", param="model")


_FOR: dict[Task, str] = {
    "embed": "The model '{}' makes embeddings and answers no prompts: use it at /v1/embeddings.",
    "generate": "The model '{}' answers prompts and makes no embeddings:"
    " use it at /v1/chat/completions.",
}


class MethodNotAllowed(ApiError):
    """The path exists with another method."""

    status = 405
    kind = "invalid_request_error"

    def __init__(self, path: str, allowed: str) -> None:
        super().__init__(
            f"Use {allowed} for {path}.",
            code="method_not_allowed",
            headers=[(b"allow", allowed.encode())],
        )


class PayloadTooLarge(ApiError):
    """Too many bytes in the body."""

    status = 413
    kind = "request_too_large"

    def __init__(self, bytes_max: int) -> None:
        message = f"Your request is larger than {bytes_max} bytes."
        super().__init__(message, code="request_too_large")


class UnsupportedMediaType(ApiError):
    """The body is compressed, or no JSON."""

    status = 415
    kind = "invalid_request_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unsupported_media_type")


class HeadersTooLarge(ApiError):
    """Too many headers, or too many bytes of them."""

    status = 431
    kind = "request_too_large"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="headers_too_large")


class InsufficientQuota(ApiError):
    """A budget in the chain doesn't cover the request; SDKs hammer unless told that a retry is
    useless."""

    status = 429
    kind = "insufficient_quota"

    def __init__(self, message: str, code: str, metadata: Mapping[str, Any]) -> None:
        headers = [(b"x-should-retry", b"false")]
        super().__init__(message, code=code, headers=headers, metadata=metadata)


class RateLimited(ApiError):
    """A rate limit of the caller's is used up; who comes back in `wait_seconds` is let in."""

    status = 429
    kind = "requests"

    def __init__(
        self, message: str, *, of_tokens: bool, wait_seconds: float, metadata: Mapping[str, Any]
    ) -> None:
        wait_ms = math.ceil(wait_seconds * 1_000)
        headers = [
            (b"retry-after", b"%d" % max(math.ceil(wait_ms / 1_000), 1)),
            (b"retry-after-ms", b"%d" % wait_ms),
        ]
        super().__init__(message, code="rate_limit_exceeded", headers=headers, metadata=metadata)
        if of_tokens:
            self.kind = "tokens"


class TooManyQueuedRequests(ApiError):
    """The organization's own requests fill what it may have waiting, for a model or to be read."""

    status = 429
    kind = "requests"

    def __init__(
        self, retry_after_seconds: int, what: str = "requests wait for this model"
    ) -> None:
        message = f"Too many of your organization's {what}. Send fewer at once."
        headers = [(b"retry-after", str(retry_after_seconds).encode())]
        super().__init__(message, code="rate_limit_exceeded", headers=headers)


class ServiceUnavailable(ApiError):
    """We lack the capacity right now."""

    status = 503
    kind = "service_unavailable_error"

    def __init__(self, message: str, *, code: str, retry_after_seconds: int = 1) -> None:
        retry_after = (b"retry-after", str(retry_after_seconds).encode())
        super().__init__(message, code=code, headers=[retry_after])


class DeadlineExceeded(ApiError):
    """The work took longer than we allow."""

    status = 504
    kind = "timeout"


USELESS = (b"x-should-retry", b"false")
MEGABYTE = 1024 * 1024


class IdempotencyConflict(ApiError):
    """409: the key is another request's, or its answer is not to be had (yet)."""

    status = 409
    kind = "idempotency_error"


class IdempotencyStorageFull(ApiError):
    """429: the organization's room for keys is used up."""

    status = 429
    kind = "idempotency_error"


def not_taken() -> BadRequest:
    """Return the error where the organization has not turned idempotency keys on."""
    message = (
        f"The header '{HEADER}' is not taken: your organization keeps no answers. An owner or admin"
        " can turn it on in the console under Settings; until then leave the header out."
    )
    return BadRequest(message, code="idempotency_not_enabled", param=HEADER)


def other_request() -> IdempotencyConflict:
    """Return the error for a key that came with another body, or for another route."""
    message = (
        f"The header '{HEADER}' names a key that came with another request within the last"
        f" {HOURS_KEPT} hours. Use a new key for each request, and the same body with each key."
    )
    return IdempotencyConflict(
        message, code="idempotency_conflict", param=HEADER, headers=[USELESS]
    )


def still_running() -> IdempotencyConflict:
    """Return the error for a key that another gateway works on."""
    message = f"The first request with this '{HEADER}' is still running. Ask again for its answer."
    later = (b"retry-after", b"1")
    return IdempotencyConflict(message, code="idempotency_conflict", param=HEADER, headers=[later])


def answer_lost() -> IdempotencyConflict:
    """Return the error for a key whose request was answered, and the answer is not here."""
    message = (
        f"The request with this '{HEADER}' was answered and charged, and its answer was too long"
        " to be kept, or was erased. Use a new key to ask anew."
    )
    return IdempotencyConflict(
        message, code="idempotency_answer_lost", param=HEADER, headers=[USELESS]
    )


def no_room(full: ClaimStorageFull) -> IdempotencyStorageFull:
    """Return the error for an organization that keeps as much as it may."""
    message = (
        f"Your organization has {full.claims:,} idempotency keys with"
        f" {full.kept_bytes / MEGABYTE:,.0f} MB of answers; {CLAIMS_MAX:,} keys and"
        f" {KEPT_BYTES_MAX // MEGABYTE} MB at most. Each is forgotten after {HOURS_KEPT} hours."
    )
    later = (b"retry-after", b"600")
    headers = [later, USELESS]
    return IdempotencyStorageFull(
        message, code="idempotency_storage_full", param=HEADER, headers=headers
    )


def unavailable() -> ServiceUnavailable:
    """Return the error while nobody can tell whether the key was used: nothing was done."""
    message = (
        f"Requests with '{HEADER}' cannot be taken at the moment; nothing was done. Try again."
    )
    return ServiceUnavailable(message, code="idempotency_unavailable", retry_after_seconds=2)


def came_to_nothing() -> ServiceUnavailable:
    """Return the error for who joined an answer that broke off."""
    message = f"The request with this '{HEADER}' that yours joined broke off. Try again."
    return ServiceUnavailable(message, code="idempotency_unavailable")
