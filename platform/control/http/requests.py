"""What surrounds every request: its id, on the answer, in each log line and each deed; its count
and time; its span. And what every answer holds to: nobody between us and the client keeps it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from structlog.contextvars import bound_contextvars

from control import traces
from control.http.client_address import client_address
from control.http.metrics import REQUESTS, SECONDS
from control.ids import new_id
from control.whence import Whence, coming_from, concerning_nobody

REQUEST_ID = "x-request-id"
SERVICE = "penstock-control"
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
KEPT_BY_NOBODY = "private, no-store"
Finish = Callable[[HttpResponseBase], None]


@sync_and_async_middleware
def surrounded(get_response: Any) -> Any:
    """Surround each request."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponseBase:
            with _surroundings(request) as finish:
                response: HttpResponseBase = await get_response(request)
                finish(response)
            return response

        return respond_async

    def respond(request: HttpRequest) -> HttpResponseBase:
        with _surroundings(request) as finish:
            response: HttpResponseBase = get_response(request)
            finish(response)
        return response

    return respond


@contextmanager
def _surroundings(request: HttpRequest) -> Iterator[Finish]:
    address = client_address(request)
    found = Whence(address=str(address) if address else None, request_id=new_id("req"))
    carrier = {"traceparent": request.headers.get("traceparent", "")}
    begun = time.perf_counter()
    with (
        coming_from(found),
        bound_contextvars(request_id=found.request_id),
        traces.part(SERVICE, "request", carrier, is_task=False) as part,
    ):

        def finish(response: HttpResponseBase) -> None:
            response.headers[REQUEST_ID] = found.request_id
            response.headers.setdefault("Cache-Control", KEPT_BY_NOBODY)
            route, method, status = _route(request), _method(request), response.status_code
            REQUESTS.labels(route, method, str(status)).inc()
            SECONDS.labels(route, method).observe(time.perf_counter() - begun)
            part.tell(
                f"{method} {route}",
                {
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                    "penstock.request_id": found.request_id,
                },
            )
            if status >= 500:
                part.fail(str(status))

        try:
            yield finish
        finally:
            concerning_nobody()


def _route(request: HttpRequest) -> str:
    """Return the address as the URL table has it: ids and secrets are no names of metrics."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}"
    return "static" if request.path.startswith(settings.STATIC_URL) else "unknown"


def _method(request: HttpRequest) -> str:
    return request.method if request.method in METHODS else "other"
