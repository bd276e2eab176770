"""How Stripe says no."""

from typing import Any


class ApiError(Exception):
    """An answer that is an error, in Stripe's form."""

    def __init__(
        self, status: int, message: str, *, kind: str = "invalid_request_error", **more: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"type": kind, "message": message, **more}}


def missing(kind: str, wanted: str) -> ApiError:
    """No such object."""
    return ApiError(404, f"No such {kind}: '{wanted}'", code="resource_missing", param="id")


def declined(code: str, decline_code: str, message: str, **more: Any) -> ApiError:
    """The bank says no."""
    return ApiError(402, message, kind="card_error", code=code, decline_code=decline_code, **more)
