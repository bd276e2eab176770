"""Calls to replicas, however they are reached."""

from collections.abc import Mapping, Sequence

import aiohttp

from serving.engine.transport.call import Call
from serving.engine.transport.connections import Connections
from serving.engine.transport.tls import TlsCall


class Client:
    """One per process: our own connections for `http`, the session for `https`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._connections = Connections()
        self._session = session

    def call(
        self, url: str, body: Sequence[bytes], headers: Mapping[str, str], *, connect_seconds: float
    ) -> Call | TlsCall:
        """Return a call that posts JSON in pieces, to enter with `async with`."""
        if url.startswith("https:"):
            return TlsCall(self._session, url, body, headers, connect_seconds=connect_seconds)
        return Call(self._connections, url, body, headers, connect_seconds=connect_seconds)

    def close(self) -> None:
        """Close the connections that wait; the session is its owner's."""
        self._connections.close()
