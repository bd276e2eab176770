"""Pages of other origins (CORS): off, until a project lists the origins whose pages may call.

A browser asks first, without a key, so that is answered by what all projects allow; the request
itself brings a key, and is held to its own project's list. A project that lists nothing treats
requests of pages as any other: without leave to be read.
"""

from serving.gateway.dialects.anthropic import envelope as anthropics
from serving.gateway.dialects.openai import envelope
from serving.gateway.directory import Directory
from serving.gateway.errors import Forbidden, Headers
from serving.gateway.http.request import HttpRequest
from serving.gateway.http.response import HttpResponse

SECONDS_REMEMBERED = 600
LIMITS = tuple(
    name
    for part in (b"limit", b"remaining", b"reset")
    for name in (
        *(b"x-ratelimit-%b-%b" % (part, what) for what, _ in envelope.LIMITED),
        *(b"anthropic-ratelimit-%b-%b" % (what, part) for what, _ in anthropics.LIMITED),
    )
)
READABLE = b", ".join(
    (
        *LIMITS,
        b"x-request-id",
        b"request-id",
        b"x-client-request-id",
        b"openai-processing-ms",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"x-penstock-cost-nanos",
        b"idempotent-replayed",
        b"original-request",
        b"x-penstock-omitted-tools",
    )
)
"""Of our headers, what a page may read besides the few that all may."""
VARY = (b"vary", b"origin")


def is_preflight(http: HttpRequest) -> bool:
    """Tell whether a browser asks what a page may do."""
    return http.method == "OPTIONS" and bool(_origin(http))


async def answer_preflight(
    http: HttpRequest, response: HttpResponse, directory: Directory, method: str
) -> None:
    """Say that a page may send a request by `method`. Raises Forbidden where none may."""
    origin = _origin(http)
    if not directory.is_allowed_somewhere(origin):
        raise _not_allowed(origin)
    asked = http.header(b"access-control-request-headers")
    headers = [
        (b"access-control-allow-methods", method.encode()),
        (b"access-control-allow-headers", asked.encode("latin-1")),
        (b"access-control-max-age", str(SECONDS_REMEMBERED).encode()),
    ]
    await response.send(200, b"", headers)


def open_response(http: HttpRequest, response: HttpResponse, directory: Directory) -> None:
    """Let a page of an origin that some project allows read its answer, as long as its key was not
    looked at."""
    origin = _origin(http)
    if origin and directory.is_allowed_somewhere(origin):
        response.cors_headers = _leave(origin)


def check_origin(
    http: HttpRequest, response: HttpResponse, allowed_origins: tuple[str, ...]
) -> None:
    """Let a page read its answer where its key's project allows its origin.

    Raises Forbidden where the project allows others.
    """
    origin = _origin(http)
    if not origin:
        return
    if origin in allowed_origins:
        response.cors_headers = _leave(origin)
        return
    response.cors_headers = ()
    if allowed_origins:
        raise _not_allowed(origin)


def _origin(http: HttpRequest) -> str:
    return http.header(b"origin")


def _leave(origin: str) -> Headers:
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", READABLE),
        VARY,
    )


def _not_allowed(origin: str) -> Forbidden:
    message = (
        f"Pages of {origin[:200]} may not call with this project's keys. An owner or admin can"
        " allow the origin in the console under Settings."
    )
    return Forbidden(message, code="origin_not_allowed")
