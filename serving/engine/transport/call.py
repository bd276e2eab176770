"""A call to a replica: JSON posted, and the answer's bytes as they come."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

from serving.engine.errors import EngineError, ReplicaUnreachable
from serving.engine.transport.connection import Connection
from serving.engine.transport.connections import Address, Connections

PORT = 80


class Answer(Protocol):
    """What a replica answers: a status, then a body in pieces."""

    async def status(self) -> int:
        """Wait for the status. Raises ReplicaUnreachable."""

    async def read(self) -> bytes:
        """Return the next piece, nothing at the end. Raises AnswerBroken."""

    def read_nowait(self) -> bytes:
        """Return what came and was not read yet."""


class Call:
    """`async with` it: yields the answer once its head is there; leaving early ends the work.

    A kept connection may have been closed while the request was on its way. When not a byte of
    the answer came, the request goes out once more on a fresh one: that is no fault of anybody.
    """

    def __init__(
        self,
        connections: Connections,
        url: str,
        body: Sequence[bytes],
        headers: Mapping[str, str],
        *,
        connect_seconds: float,
    ) -> None:
        self._connections = connections
        self._address, start = _place(url)
        self._head = _head(start, headers, sum(map(len, body)))
        self._body = body
        self._connect_seconds = connect_seconds
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        """Raises ReplicaUnreachable."""
        kept = self._connections.take(self._address)
        if kept is not None:
            try:
                return await self._begin(kept)
            except ReplicaUnreachable:
                if kept.has_heard:
                    raise
        return await self._begin(await self._connections.open(self._address, self._connect_seconds))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            self._connections.give_back(self._address, self._connection)

    async def _begin(self, connection: Connection) -> Connection:
        try:
            await connection.send(self._head, self._body)
            await connection.status()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


@lru_cache(maxsize=4_096)
def _place(url: str) -> tuple[Address, bytes]:
    """Return where a URL leads, and the request's first lines."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise EngineError("a replica's URL is not http")
    host = parts.netloc.rpartition("@")[2]
    start = f"POST {parts.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return Address(parts.hostname, parts.port or PORT), start.encode()


def _head(start: bytes, headers: Mapping[str, str], length: int) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if lines.count("\n") != len(headers):
        raise ValueError("a header holds a line break")
    return b"%b%bcontent-length: %d\r\n\r\n" % (start, lines.encode("latin-1"), length)
