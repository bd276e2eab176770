"""The policies of the management API's views, which the settings name: who is signed in, which
bodies are accepted, how often a caller may call, and the response to OPTIONS.

REST framework imports this module before its views, so the module imports none.
"""

from collections.abc import Mapping
from time import time
from typing import IO, TYPE_CHECKING, Any

import msgspec
from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import SessionAuthentication as DjangoSessionAuthentication
from rest_framework.exceptions import APIException, ParseError, PermissionDenied
from rest_framework.metadata import BaseMetadata
from rest_framework.parsers import JSONParser
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from control.reauthentication import is_recent
from control.request_context import client_address

if TYPE_CHECKING:
    from rest_framework.views import APIView

BODY_BYTES_MAX = 2**20
WINDOW_SECONDS = 60
STALE = "Your sign-in is too long ago for this. Sign in again, or use an API key."


class SessionAuthentication(DjangoSessionAuthentication):
    """The console's session; writes need Django's CSRF token and a recent sign-in."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Return the signed-in user. Raises PermissionDenied for a write long after sign-in."""
        user_and_auth: tuple[Any, Any] | None = super().authenticate(request)
        is_write = request.method not in SAFE_METHODS
        if user_and_auth and is_write and not is_recent(request._request):
            raise PermissionDenied(STALE, code="reauthentication_required")
        return user_and_auth


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The OpenAPI security scheme of sessions."""

    target_class = SessionAuthentication
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the OpenAPI security scheme."""
        return {"type": "apiKey", "in": "cookie", "name": "penstock_session"}


class TooLarge(APIException):
    """A body is larger than `BODY_BYTES_MAX`."""

    status_code = 413
    default_detail = f"The body is over {BODY_BYTES_MAX} bytes."
    default_code = "request_too_large"


class StrictJSONParser(JSONParser):
    """Rejects JSON that Python's parser accepts but PostgreSQL can't store, such as lone
    surrogates, and JSON that is nested too deep."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the parsed body. Raises ParseError or TooLarge."""
        body = stream.read(BODY_BYTES_MAX + 1)
        if len(body) > BODY_BYTES_MAX:
            raise TooLarge
        try:
            return msgspec.json.decode(body)
        except RecursionError:
            raise ParseError("The body is nested too deep.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ParseError(f"The body is no JSON: {error}") from error


class CallerThrottle(BaseThrottle):
    """Limits the calls of a person or an API key in each minute, counted in Django's cache for all
    processes of control. Unauthenticated requests are rejected before anything is counted."""

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


class Metadata(BaseMetadata):
    """Responds to OPTIONS with the name and description of a view; `Allow` lists its methods, and
    the OpenAPI document has the rest. REST framework's own response needs a queryset, which not
    all views have."""

    def determine_metadata(self, request: Request, view: Any) -> dict[str, Any]:
        """Return the view's name and description."""
        return {"name": view.get_view_name(), "description": view.get_view_description()}
