"""A call to an external engine over TLS: aiohttp's work."""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from types import TracebackType

import aiohttp

from serving.engine.errors import InvalidEngineResponse, ReplicaUnreachable
from serving.silent_peers import bound_silence

READ_BUFFER_BYTES = 64 * 1024
KEEPALIVE_SECONDS = 4.0


def open_session() -> aiohttp.ClientSession:
    """Return the one session of a process: no cookies, no limit of connections."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, keepalive_timeout=KEEPALIVE_SECONDS, socket_factory=_watched_socket
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        read_bufsize=READ_BUFFER_BYTES,
        skip_auto_headers=("user-agent", "accept", "accept-encoding"),
    )


def _watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket on which a host that falls silent is found out."""
    family, kind, protocol, *_ = address
    line = socket.socket(family, kind, protocol)
    line.setblocking(False)
    bound_silence(line)
    return line


@lru_cache
def _timeout(connect_seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)


async def _pieces(body: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in body:
        yield piece


class HttpsReplicaResponse:
    """An `Answer` that aiohttp reads."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    async def status(self) -> int:
        """Return the status."""
        return self._reply.status

    async def read(self) -> bytes:
        """Return the next piece, nothing at the end. Raises InvalidEngineResponse."""
        try:
            return await self._reply.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise InvalidEngineResponse(type(error).__name__) from error

    def read_nowait(self) -> bytes:
        """Return what came and was not read yet."""
        return self._reply.content.read_nowait()


class HttpsReplicaCall:
    """`async with` it, as `Call`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        body: Sequence[bytes],
        headers: Mapping[str, str],
        *,
        connect_seconds: float,
    ) -> None:
        self._session = session
        self._url = url
        self._body = body
        length = str(sum(map(len, body)))
        self._headers = {
            **headers,
            "content-type": "application/json",
            "content-length": length,
        }
        self._timeout = _timeout(connect_seconds)
        self._reply: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> HttpsReplicaResponse:
        """Raises ReplicaUnreachable."""
        try:
            self._reply = await self._session.post(
                self._url,
                data=_pieces(self._body),
                headers=self._headers,
                timeout=self._timeout,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ReplicaUnreachable(type(error).__name__) from error
        return HttpsReplicaResponse(self._reply)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reply = self._reply
        if reply is not None:
            # Not release: an unfinished answer's connection must close, which ends the work.
            reply.close() if not reply.content.at_eof() else reply.release()
