"""The rate limit of the management API's callers, counted in Django's cache for all processes of
control."""

from time import time
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from control.request_context import client_address

if TYPE_CHECKING:
    from rest_framework.views import APIView  # reads the settings that name this class

WINDOW_SECONDS = 60


class CallerThrottle(BaseThrottle):
    """Limits the calls of a person or an API key in each minute. Unauthenticated requests are
    rejected before anything is counted."""

    def allow_request(self, request: Request, view: "APIView") -> bool:
        """Count the call and return whether it is allowed."""
        window, _ = divmod(time(), WINDOW_SECONDS)
        name = f"calls:{caller_of(request)}:{int(window)}"
        cache.add(name, 0, timeout=2 * WINDOW_SECONDS)
        try:
            count = cache.incr(name)
        except ValueError:  # evicted meanwhile: the count starts again
            return True
        return bool(count <= settings.CONFIG.management_api_rate_limit)

    def wait(self) -> float:
        """Return the seconds until the count starts again."""
        return WINDOW_SECONDS - time() % WINDOW_SECONDS


def caller_of(request: Request | HttpRequest) -> str:
    """Return the id of a person or API key, or the address of an unknown client."""
    user = request.user
    address = f"address:{client_address(request)}"
    return str(getattr(user, "key_id", None) or getattr(user, "pk", None) or address)
