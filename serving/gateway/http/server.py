"""The HTTP server of one application: it listens, answers, and comes to an orderly end."""

import asyncio
import socket
from dataclasses import dataclass, field
from functools import partial

import structlog

from serving.contract.environment import ConfigError
from serving.gateway.http.connection import HttpConnection, ServerState

log = structlog.get_logger(__name__)

BACKLOG = 2_048


@dataclass(eq=False)
class HttpServer(ServerState):
    """Calls the application once for each request, in a task of its own."""

    _listener: asyncio.Server | None = field(default=None, init=False)
    _given: socket.socket | None = field(default=None, init=False)

    @property
    def is_listening(self) -> bool:
        """Whether clients can connect."""
        return self._listener is not None and self._listener.is_serving()

    @property
    def port(self) -> int:
        """The TCP port of a server that listens."""
        if self._listener is None:
            raise RuntimeError("the server does not listen")
        number: int = self._listener.sockets[0].getsockname()[1]
        return number

    async def start(self, host: str, port: int, given: socket.socket | None = None) -> None:
        """Listen, on a socket that was handed over if there is one. Raises ConfigError."""
        loop, make = asyncio.get_running_loop(), partial(HttpConnection, self)
        self._given = given
        try:
            if given is None:
                self._listener = await loop.create_server(make, host, port, backlog=BACKLOG)
            else:
                self._listener = await loop.create_server(make, sock=given, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error

    async def close(self, patience: float) -> None:
        """Accept nobody any more and let what is under way come to its end, for `patience` seconds;
        then cancel what is left."""
        if self._listener is None:
            return
        self._listener.close()
        if self._given is not None:
            self._given.close()
        for connection in list(self.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(patience):
                while self.connections or self.tasks:
                    self.ended.clear()
                    await self.ended.wait()
        except TimeoutError:
            log.error("requests_cancelled", count=len(self.tasks), after_seconds=patience)
            for task in self.tasks:
                task.cancel()
            for connection in self.connections:
                connection.close_now()


def given(descriptor: int) -> socket.socket:
    """Return the listening socket that we were handed. It stays open when we end, so that who
    connects meanwhile waits for the next of us instead of being refused."""
    try:
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise ConfigError(f"PENSTOCK_GATEWAY_FD is {descriptor}: {error.strerror}") from error
