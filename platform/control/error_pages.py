"""Error responses; never a traceback, never a wrong 401."""

import sys
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views import defaults

from control.errors import TooManyRequests, is_database_unavailable
from control.request_context import is_for_programs

RETRY_AFTER_SECONDS = 2
TOO_MANY_RETRY_AFTER_SECONDS = 60


def error_body(
    message: str,
    kind: str,
    *,
    param: str | None = None,
    code: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, object]:
    """Return the body of an error: all four keys, always, and `metadata` if there is any."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return {"error": error if metadata is None else {**error, "metadata": metadata}}


def service_unavailable(request: HttpRequest) -> HttpResponse:
    """Return 503 with Retry-After."""
    response: HttpResponse
    if is_for_programs(request):
        message = "The service is temporarily unavailable."
        body = error_body(message, "service_unavailable_error", code="database_unavailable")
        response = JsonResponse(body, status=503)
    else:
        # Rendered without the request: its user and session are in the database.
        response = HttpResponse(render_to_string("503.html"), status=503)
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the response to an unhandled exception."""
    if is_database_unavailable(sys.exc_info()[1]):
        return service_unavailable(request)
    if is_for_programs(request):
        return JsonResponse(error_body("Something failed on our side.", "api_error"), status=500)
    return defaults.server_error(request)


def too_many_requests(request: HttpRequest) -> HttpResponse:
    """Return 429 for too many emails, sign-ups or codes."""
    page = render_to_string("429.html", request=request)
    headers = {"Retry-After": str(TOO_MANY_RETRY_AFTER_SECONDS)}
    return HttpResponse(page, status=429, headers=headers)


def too_many_exports(request: HttpRequest, refused: TooManyRequests) -> HttpResponse:
    """Return 429 for too many downloads at once."""
    context = {"title": "Too many downloads", "message": refused.message}
    page = render_to_string("429.html", context, request=request)
    headers = {"Retry-After": str(refused.retry_after_seconds)}
    return HttpResponse(page, status=429, headers=headers)


def server_busy(request: HttpRequest) -> HttpResponse:
    """Return 503 with Retry-After for a request that got no slot in time."""
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return HttpResponse(render_to_string("busy.html"), status=503, headers=headers)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 404."""
    if is_for_programs(request):
        body = error_body("There is nothing here.", "invalid_request_error", code="not_found")
        return JsonResponse(body, status=404)
    return defaults.page_not_found(request, exception)
