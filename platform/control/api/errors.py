"""Conversion of exceptions in the management API to HTTP responses."""

import math
from functools import singledispatch
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404
from django.http.response import HttpResponseBase
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from control.error_pages import error_body, service_unavailable
from control.errors import ServiceError, is_database_unavailable

KINDS = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "permission_denied",
    404: "invalid_request_error",
    405: "invalid_request_error",
    406: "invalid_request_error",
    409: "conflict",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "requests",
}
TOO_MANY = "That is too many calls in a minute. Try again when Retry-After is over."
CODES = {"unknown_parameter": "unknown_parameter", "required": "missing_required_parameter"}


def exception_handler(error: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Return the response to an exception; None for a bug of ours."""
    set_rollback()
    if is_database_unavailable(error):
        return service_unavailable(context["request"]._request)
    return error_response(error)


@singledispatch
def error_response(error: Exception) -> Response | None:
    """Return the response to an exception that the caller caused; None for any other."""
    return None


@error_response.register
def _(error: ServiceError) -> Response:
    seconds = error.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    if error.version is not None:
        headers["ETag"] = f'"{error.version}"'
    return _response(
        error.status, error.message, error.param, error.code, headers, metadata=error.metadata
    )


@error_response.register
def _(error: exceptions.ValidationError) -> Response:
    param, detail = first_error(error.detail)
    return _response(400, str(detail), param, CODES.get(str(detail.code), "invalid_value"))


@error_response.register
def _(error: exceptions.APIException) -> Response:
    code = getattr(error.detail, "code", None)
    return _response(error.status_code, str(error.detail), None, code, _headers(error))


@error_response.register
def _(error: exceptions.Throttled) -> Response:
    return _response(429, TOO_MANY, None, "rate_limit_exceeded", _headers(error))


@error_response.register
def _(error: Http404) -> Response:
    return _response(404, "There is nothing here.", None, "not_found")


@error_response.register
def _(error: RequestDataTooBig) -> Response:
    return _response(413, "The body is too large.", None, "request_too_large")


@error_response.register
def _(error: PermissionDenied) -> Response:
    return _response(403, "You may not do this.", None, "permission_denied")


def _response(
    status: int,
    message: str,
    param: str | None,
    code: str | None,
    headers: dict[str, str] | None = None,
    *,
    metadata: dict[str, Any] | None = None,
) -> Response:
    kind = KINDS.get(status, "api_error")
    body = error_body(message, kind, param=param, code=code, metadata=metadata)
    return Response(body, status=status, headers=headers)


def _headers(error: exceptions.APIException) -> dict[str, str]:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return headers


def first_error(detail: Any, path: str = "") -> tuple[str | None, exceptions.ErrorDetail]:
    """Return the path and message of the first of a serializer's errors."""
    if isinstance(detail, dict):
        name, inner = next(iter(detail.items()))
        if name != "non_field_errors":
            path = f"{path}.{name}" if path else str(name)
        return first_error(inner, path)
    if isinstance(detail, list):
        return first_error(detail[0], path)
    return path or None, detail
