"""Compression of what is safe to compress: length tells (BREACH) where one answer holds a secret
that stays and what an attacker chose, and can be had many times.

Safe are the console's pages and the management API's answers to GET: the CSRF token is masked anew
in each, session cookies stand in no page, keys and signing secrets are in no answer that can be had
twice, and Django adds up to 100 random bytes. Not compressed: sign-in and account pages, which show
factors' secrets; the admin, whose mailbox holds live links beside a search; whatever answers a
POST, and streams.
"""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

SAFE_APPS = frozenset({"console"})
API = "/api/"


def is_safe(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Tell whether an answer may be compressed."""
    if request.method != "GET" or response.streaming:
        return False
    match = request.resolver_match
    return request.path.startswith(API) or (match is not None and match.app_name in SAFE_APPS)


class SafeCompression(GZipMiddleware):
    """Compresses what may be; the rest passes."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return the answer, smaller where that tells nobody anything."""
        if not is_safe(request, response):
            return response
        return super().process_response(request, response)
