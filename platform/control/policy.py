"""The Content-Security-Policy: nothing from other hosts, no inline script or style."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

HEADER = "Content-Security-Policy"
STRICT = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ]
)
# The admin's Alpine evaluates its attributes, and Unfold puts colours and data into the page;
# only operators get there, and still nothing comes from elsewhere. Its mailbox shows each mail in
# a frame, under a policy of the mail's own.
ADMIN = STRICT.replace(
    "script-src 'self'; style-src 'self'",
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " frame-src 'self'",
)
# Swagger UI sets styles from its script; the page holds nothing of a tenant's.
DOCS = STRICT.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
LOOSER = {"admin": ADMIN, "docs": DOCS}
"""By the url's namespace or name."""

Respond = Callable[[HttpRequest], Any]


def policy_for(request: HttpRequest) -> str:
    """Return the policy of the page that answered `request`; unknown pages get the strict one."""
    match = request.resolver_match
    if match is None:
        return STRICT
    return LOOSER.get(match.app_name) or LOOSER.get(match.view_name, STRICT)


@sync_and_async_middleware
def content_security_policy(get_response: Respond) -> Respond:
    """Put the policy on every answer that does not carry its own."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponseBase:
            return _protected(request, await get_response(request))

        return respond_async

    def respond(request: HttpRequest) -> HttpResponseBase:
        return _protected(request, get_response(request))

    return respond


def _protected(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    response.headers.setdefault(HEADER, policy_for(request))
    return response
