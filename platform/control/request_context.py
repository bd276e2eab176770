"""The request that the current work belongs to: its id and client address, for audit events and log
lines, without being passed from call to call. A task has the id of the request that sent it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.http import HttpRequest
from structlog.contextvars import bind_contextvars, unbind_contextvars

from serving.contract.client_address import Address
from serving.contract.client_address import client_address as parse_address

if TYPE_CHECKING:
    from rest_framework.request import Request

REQUEST_ID = "x-request-id"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The client's network address (None where it is unknown) and the id of its request."""

    address: str | None = None
    request_id: str = ""


NO_REQUEST = RequestContext()
_current: ContextVar[RequestContext] = ContextVar("request_context", default=NO_REQUEST)


def current_request() -> RequestContext:
    """Return the current context; `NO_REQUEST` outside a request."""
    return _current.get()


@contextmanager
def request_context(context: RequestContext) -> Iterator[None]:
    """Make `context` the current one within the block."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


LOG_IDS = ("organization_id", "user_id", "key_id")


def bind_log_ids(**ids: str | None) -> None:
    """Add ids to all later log lines of this request. Names are never logged."""
    bind_contextvars(**{name: each for name, each in ids.items() if each and name in LOG_IDS})


def clear_log_ids() -> None:
    """Remove the ids that `bind_log_ids` added."""
    unbind_contextvars(*LOG_IDS)


def client_address(request: "HttpRequest | Request") -> Address | None:
    """Return the client's address, for limits, API keys' networks and the audit log; None where
    the server knows none. `TrustedProxies` has put it into the request."""
    return parse_address(request.META.get("REMOTE_ADDR", ""))


def is_for_programs(request: HttpRequest) -> bool:
    """Return whether the response should be JSON rather than a page."""
    return request.path.startswith(("/api/", "/internal/"))
