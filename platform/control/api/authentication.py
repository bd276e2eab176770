"""Session authentication of the management API, for people signed in to the console.

It is separate because REST framework imports it before `control.api.schema` can be imported.
"""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import SessionAuthentication as DjangoSessionAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from control.reauthentication import is_recent

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
