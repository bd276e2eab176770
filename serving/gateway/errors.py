"""What a client can be told. One class carries the facts; `body` is the only rendering.

ApiError
├── BadRequest           400  the request is wrong: change it
├── Unauthorized         401  one body for every reason
├── Forbidden            403  the key may not do this
├── NotFound             404  no such model, or not yours: the same body
├── TooLarge             413, 431
├── NoMoney              429  a retry is useless
├── Unavailable          503  our capacity: come back in `retry_after_seconds`
└── TimedOut             504  our deadline
"""

import msgspec

from serving.contract.money import format_dollars

Headers = list[tuple[bytes, bytes]]


class ErrorDetail(msgspec.Struct):
    """The four keys that every error has."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    """An error in OpenAI's dialect."""

    error: ErrorDetail


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
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or []

    def body(self) -> bytes:
        """Return the error as JSON."""
        detail = ErrorDetail(self.message, self.kind, self.param, self.code)
        return msgspec.json.encode(ErrorBody(detail))


class BadRequest(ApiError):
    """The request is wrong: `param` names the field."""

    status = 400
    kind = "invalid_request_error"


class Unauthorized(ApiError):
    """The key is missing, malformed, unknown, revoked, expired, or not for this network."""

    status = 401
    kind = "invalid_request_error"

    def __init__(self) -> None:
        super().__init__("Incorrect API key provided.", code="invalid_api_key")


class Forbidden(ApiError):
    """The key is good but lacks the scope."""

    status = 403
    kind = "permission_denied"


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
        )


class MethodNotAllowed(ApiError):
    """The path exists with another method."""

    status = 405
    kind = "invalid_request_error"


class TooLarge(ApiError):
    """Too many bytes in the body."""

    status = 413
    kind = "request_too_large"


class HeadersTooLarge(ApiError):
    """Too many headers, or too many bytes of them."""

    status = 431
    kind = "request_too_large"


class NoMoney(ApiError):
    """A budget in the chain is used up; SDKs hammer unless told that a retry is useless."""

    status = 429
    kind = "insufficient_quota"

    def __init__(self, code: str, *, cost_nanos: int, available_nanos: int) -> None:
        message = (
            f"Your budget is used up ({code.replace('_', ' ')}): this request could cost"
            f" {format_dollars(cost_nanos)}, and {format_dollars(available_nanos)} is left."
            " Check plan and billing."
        )
        super().__init__(message, code=code, headers=[(b"x-should-retry", b"false")])


class Unavailable(ApiError):
    """We lack the capacity right now."""

    status = 503
    kind = "service_unavailable_error"

    def __init__(self, message: str, *, code: str, retry_after_seconds: int = 1) -> None:
        retry_after = (b"retry-after", str(retry_after_seconds).encode())
        super().__init__(message, code=code, headers=[retry_after])


class TimedOut(ApiError):
    """The work took longer than we allow."""

    status = 504
    kind = "timeout"
