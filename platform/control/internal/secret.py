"""The door of the internal API: the data plane shows its secret, everybody else sees nothing."""

import hmac
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils.decorators import sync_and_async_middleware

PREFIX = "/internal/"


def is_refused(request: HttpRequest) -> bool:
    """Tell whether a request to the internal API lacks the secret (compared in constant time)."""
    if not request.path.startswith(PREFIX):
        return False
    wanted = f"Bearer {settings.CONFIG.internal_secret}".encode()
    return not hmac.compare_digest(request.headers.get("Authorization", "").encode(), wanted)


def _unauthorized() -> HttpResponseBase:
    return JsonResponse({"error": {"message": "The internal secret is wrong."}}, status=401)


@sync_and_async_middleware
def require_internal_secret(get_response: Any) -> Any:
    """Answer 401 to whoever calls the internal API without the secret."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponseBase:
            return _unauthorized() if is_refused(request) else await get_response(request)

        return respond_async

    def respond(request: HttpRequest) -> HttpResponseBase:
        return _unauthorized() if is_refused(request) else get_response(request)

    return respond
