"""The call from the gateway to a replica, and what can go wrong before its first byte.

EngineError
├── ReplicaUnreachable   no connection, or it broke before an answer: another replica may serve
├── ReplicaFailing       an answer of 5xx: this replica is in trouble
└── EngineRefusal        an answer of 4xx: the request is wrong, no replica will take it
"""

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache

import aiohttp

ALLOWED_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
"""An engine serves many more routes; a gateway never calls them."""

KEEPALIVE_SECONDS = 4.0
"""Below the 5 s after which a replica's HTTP server closes an idle connection."""

REFUSAL_BYTES_MAX = 64 * 1024
LARGE_BYTES = 1024 * 1024
READ_BUFFER_BYTES = 64 * 1024


class EngineError(Exception):
    """The engine did not begin to answer."""


class ReplicaUnreachable(EngineError):
    """No connection to the replica, or it broke before the answer began."""


class ReplicaFailing(EngineError):
    """The replica answered with a server error."""


class EngineRefusal(EngineError):
    """The engine says the request is wrong; `text` is for classifying, never for clients."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"engine refused with {status}")
        self.status = status
        self.text = text


def open_session() -> aiohttp.ClientSession:
    """Return the one session of a process: no cookies, no limit but the pools' own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        read_bufsize=READ_BUFFER_BYTES,
        skip_auto_headers=("user-agent", "accept", "accept-encoding"),
    )


def as_payload(data: bytes) -> aiohttp.BytesPayload | io.BytesIO:
    """Return bytes as aiohttp likes them: more than a megabyte goes out in pieces."""
    if len(data) > LARGE_BYTES:
        return io.BytesIO(data)
    return aiohttp.BytesPayload(data, content_type="application/json")


@lru_cache
def _timeout(connect_seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)


@asynccontextmanager
async def open_call(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    connect_seconds: float,
) -> AsyncIterator[aiohttp.StreamReader]:
    """Post JSON and yield the answer's bytes once a 200 began; leaving early aborts the work.

    Raises an EngineError before the first byte; reading raises what aiohttp raises.
    """
    try:
        reply = await session.post(
            url,
            data=as_payload(body),
            headers=headers,
            timeout=_timeout(connect_seconds),
            allow_redirects=False,
        )
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ReplicaUnreachable(type(error).__name__) from error
    try:
        if reply.status != 200:
            raise await _classify(reply)
        yield reply.content
    finally:
        # Not release: an unfinished answer's connection must close, which aborts the generation.
        reply.close() if not reply.content.at_eof() else reply.release()


async def _classify(reply: aiohttp.ClientResponse) -> EngineError:
    if reply.status >= 500 or reply.status in (401, 404):
        return ReplicaFailing(f"engine answered {reply.status}")
    try:
        text = (await reply.content.read(REFUSAL_BYTES_MAX)).decode(errors="replace")
    except (aiohttp.ClientError, OSError) as error:
        return ReplicaUnreachable(type(error).__name__)
    return EngineRefusal(reply.status, text)
