"""Authentication of the internal API: a caller presents a credential, may call what its role
allows, and acts for its own gateways only; everyone else is refused."""

from collections.abc import Mapping
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils.decorators import sync_and_async_middleware

from control.errors import NotPermitted
from serving.contract.credential import Role, ServiceIdentity

log = structlog.get_logger(__name__)

PREFIX = "/internal/"
METRICS = "/metrics"
BODY_BYTES_MAX = 32 * 2**20
"""5,000 events of the longest kind are well under this."""
STRANGERS_BODY_BYTES_MAX = 64 * 2**10
CALLS: dict[Role, frozenset[str]] = {
    "gateway": frozenset(
        {"failed-requests", "feed", "gateways", "idempotency", "leases", "usage-events"}
    ),
    "fleet": frozenset({"engine-counters", "feed", "fleets"}),
    "control": frozenset(),
}
"""The calls under /internal/v1/ that each role may make, by the first segment of the path."""


def is_internal(path: str) -> bool:
    """Tell whether a path is for the data plane and operators' machines only."""
    return path.startswith(PREFIX) or path == METRICS


def body_bytes_max(scope: Mapping[str, Any]) -> int:
    """Return the largest body of an internal call. A call without a known credential, which is
    refused anyway, gets a small limit."""
    header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    is_known = settings.CONFIG.callers.find(header) is not None
    return BODY_BYTES_MAX if is_known else STRANGERS_BODY_BYTES_MAX


def denial_reason(request: HttpRequest) -> HttpResponseBase | None:
    """Return the response that refuses a request to the internal API; None if it is allowed. Every
    known caller may read the metrics."""
    if not is_internal(request.path):
        return None
    caller = _find(request)
    if caller is None:
        return _denied("The credential is unknown or has expired.", 401)
    call = request.path.removeprefix(f"{PREFIX}v1/").partition("/")[0]
    if request.path != METRICS and call not in CALLS[caller.role]:
        log.warning("internal_request_denied", caller=str(caller), path=request.path)
        return _denied(f"A {caller.role} may not call this.", 403)
    return None


def caller_of(request: HttpRequest) -> ServiceIdentity:
    """Return the caller of an internal call. Raises NotPermitted without a valid credential."""
    caller = _find(request)
    if caller is None:
        raise NotPermitted("The credential is unknown or has expired.")
    return caller


def _find(request: HttpRequest) -> ServiceIdentity | None:
    found: ServiceIdentity | None = settings.CONFIG.callers.find(
        request.headers.get("Authorization", "")
    )
    return found


def _denied(message: str, status: int) -> HttpResponseBase:
    return JsonResponse({"error": {"message": message}}, status=status)


@sync_and_async_middleware
def require_credential(get_response: Any) -> Any:
    """Refuse internal calls that the caller may not make."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponseBase:
            return denial_reason(request) or await get_response(request)

        return respond_async

    def respond(request: HttpRequest) -> HttpResponseBase:
        return denial_reason(request) or get_response(request)

    return respond
