"""The listening socket, and the server of one ASGI application."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from serving.contract.environment import ConfigError
from serving.gateway.http.connection import RenderError, bounded
from serving.gateway.http.connection_limits import ConnectionLimits

BACKLOG = 2_048


KEEPALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that none writes into a closing one."""


class HttpServer(uvicorn.Server):
    """A server that leaves the process's signals to `serve`, which ends things in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


def listener(
    app: object, host: str, port: int, connections: ConnectionLimits, render_error: RenderError
) -> HttpServer:
    """Return a server for one ASGI application; no framework, no access log."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=host,
        port=port,
        http=bounded(connections, render_error),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEPALIVE_SECONDS,
    )
    return HttpServer(config)


def given(descriptor: int) -> socket.socket:
    """Return the listening socket that we were handed. It stays open when we end, so that who
    connects meanwhile waits for the next of us instead of being refused."""
    try:
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise ConfigError(f"PENSTOCK_GATEWAY_FD is {descriptor}: {error.strerror}") from error
