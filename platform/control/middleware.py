"""Django's middleware of our own: request ids, metrics and traces, addresses with NUL characters,
compression, and the Content-Security-Policy."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction
from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.decorators import sync_and_async_middleware
from structlog.contextvars import bound_contextvars

from control.db.models import new_id
from control.request_context import (
    REQUEST_ID,
    RequestContext,
    clear_log_ids,
    client_address,
    request_context,
)
from control.telemetry import tracing
from control.telemetry.metrics import REQUEST_SECONDS, REQUESTS

SERVICE = "penstock-control"
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
NO_STORE = "private, no-store"
Finish = Callable[[HttpResponseBase], None]
SAFE_APPS = frozenset({"console"})
API = "/api/"
# Alpine, which the admin uses, evaluates attributes, and Unfold writes colours and data into the
# page. Only operators open it, and it still loads nothing from other hosts. Sent mail is shown in a
# frame, under a policy of its own.
ADMIN = {
    "script-src": [SELF, UNSAFE_INLINE, UNSAFE_EVAL],
    "style-src": [SELF, UNSAFE_INLINE],
    "frame-src": [SELF],
}
# Swagger UI sets styles from its script. The page holds no tenant's data.
DOCS = {"style-src": [SELF, UNSAFE_INLINE]}
EXCEPTIONS = {"admin": ADMIN, "docs": DOCS}
"""By the URL's namespace or name: directives that replace those of the settings."""


@sync_and_async_middleware
def request_middleware(get_response: Any) -> Any:
    """Give each request an id that its response, log lines and audit events carry; count, time and
    trace it; and let no cache keep its response unless the view says so."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponseBase:
            with _observe(request) as finish:
                response: HttpResponseBase = await get_response(request)
                finish(response)
            return response

        return respond_async

    def respond(request: HttpRequest) -> HttpResponseBase:
        with _observe(request) as finish:
            response: HttpResponseBase = get_response(request)
            finish(response)
        return response

    return respond


@contextmanager
def _observe(request: HttpRequest) -> Iterator[Finish]:
    address = client_address(request)
    context = RequestContext(address=str(address) if address else None, request_id=new_id("req"))
    carrier = {"traceparent": request.headers.get("traceparent", "")}
    started = time.perf_counter()
    with (
        request_context(context),
        bound_contextvars(request_id=context.request_id),
        tracing.span(SERVICE, "request", carrier, is_task=False) as span,
    ):

        def finish(response: HttpResponseBase) -> None:
            response.headers[REQUEST_ID] = context.request_id
            response.headers.setdefault("Cache-Control", NO_STORE)
            route, method, status = _route(request), _method(request), response.status_code
            REQUESTS.labels(route, method, str(status)).inc()
            REQUEST_SECONDS.labels(route, method).observe(time.perf_counter() - started)
            span.tell(
                f"{method} {route}",
                {
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                    "penstock.request_id": context.request_id,
                },
            )
            if status >= 500:
                span.fail(str(status))

        try:
            yield finish
        finally:
            clear_log_ids()


def _route(request: HttpRequest) -> str:
    """Return the route's pattern: ids and secrets in a path must not become labels."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}"
    return "static" if request.path.startswith(settings.STATIC_URL) else "unknown"


def _method(request: HttpRequest) -> str:
    return request.method if request.method in METHODS else "other"


@sync_and_async_middleware
def reject_null_bytes(get_response: Any) -> Any:
    """Return 404 for a NUL character in the path or query: PostgreSQL stores none."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponseBase:
            _reject_null_bytes(request)
            return await get_response(request)

        return respond_async

    def respond(request: HttpRequest) -> HttpResponseBase:
        _reject_null_bytes(request)
        return get_response(request)

    return respond


def _reject_null_bytes(request: HttpRequest) -> None:
    if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
        raise Http404("A URL cannot contain a NUL character.")
    # A quoted cookie may contain one. Ours never do, so such a cookie is ignored.
    for name in [name for name, value in request.COOKIES.items() if "\0" in value]:
        del request.COOKIES[name]


def is_safe(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Return whether compressing a response reveals nothing.

    The length of a compressed response reveals a secret in it (BREACH) where the secret stays the
    same and an attacker can request it many times beside text of their choice. The console's pages
    and GET responses of the management API are safe: Django masks the CSRF token anew each time and
    adds up to 100 random bytes, session cookies are in no page, and keys and signing secrets are
    shown once. Sign-in and account pages show the secrets of second factors, and the admin shows
    live links of sent mail beside a search field: these stay uncompressed.
    """
    if request.method != "GET" or response.streaming:
        return False
    match = request.resolver_match
    return request.path.startswith(API) or (match is not None and match.app_name in SAFE_APPS)


class CompressionMiddleware(GZipMiddleware):
    """Compresses the responses for which `is_safe` holds."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return the response, compressed where that is safe."""
        if not is_safe(request, response):
            return response
        return super().process_response(request, response)


class SecurityHeadersMiddleware(CSPMiddleware):
    """Sets the Content-Security-Policy of the settings (nothing from other hosts, no inline script
    or style), with the exceptions above, on each response that has none of its own."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        """Return the parts of the policy of the page that was requested."""
        parts = super().get_policy_parts(request, response, report_only)
        match = request.resolver_match
        if match is not None and parts.replace is None:
            parts.replace = EXCEPTIONS.get(match.app_name) or EXCEPTIONS.get(match.view_name)
        return parts
