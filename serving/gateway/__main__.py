"""`python -m serving.gateway`: the public listener, the operator's, and an orderly end."""

import asyncio
import gc
import os
import signal
import socket
import sqlite3
import sys

import structlog
import uvloop

from serving import telemetry
from serving.contract.environment import ConfigError
from serving.file_lock import FileLocked
from serving.gateway.config import GatewayConfig
from serving.gateway.dialects.openai.envelope import error_reply
from serving.gateway.gateway import Gateway, build
from serving.gateway.http.connection_limits import ConnectionLimits
from serving.gateway.http.server import HttpServer, given
from serving.gateway.operator_api import OperatorApp
from serving.redis_client import unsupported_version

log = structlog.get_logger(__name__)

LAST_WORDS_SECONDS = 10
"""For telling clients that their streams end here, and for booking what those took."""
OPERATORS_CONNECTIONS_MAX = 64
COLLECT_EVERY = 5_000
"""New objects between two searches for cycles: each stops the loop, for as long as it finds
something. A request leaves it nothing to find."""


def relieve_collector() -> None:
    """Search for cycles seldom, and never among what lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


async def serve(config: GatewayConfig) -> None:
    """Run until a signal; then drain streams, flush the journal and ship it."""
    descriptor = config.listening_descriptor
    listening = None if descriptor is None else given(descriptor)
    gateway = build(config)
    public = HttpServer(gateway.app, gateway.connections, error_reply)
    gateway.is_listening = lambda: public.is_listening
    beside = ConnectionLimits(OPERATORS_CONNECTIONS_MAX, OPERATORS_CONNECTIONS_MAX)
    operator = HttpServer(OperatorApp(gateway), beside, error_reply)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await operator.start(config.operator_host, config.operator_port)
    await gateway.load()
    gateway.start()
    relieve_collector()
    await gateway.wait_until_informed()
    await public.start(config.host, config.port, listening)
    log.info("gateway_started", host=config.host, port=config.port)
    await stopping.wait()
    await retire(gateway, public, config)
    await gateway.stop()
    await operator.close(LAST_WORDS_SECONDS)
    log.info("gateway_stopped")


async def retire(gateway: Gateway, public: HttpServer, config: GatewayConfig) -> None:
    """Let balancers look elsewhere, then let streams come to their ends, then end what is left."""
    gateway.drain()
    await asyncio.sleep(config.lame_duck_seconds)
    longest_seconds = gateway.directory.longest_seconds
    patience = longest_seconds if config.drain_seconds is None else config.drain_seconds
    closing = asyncio.create_task(public.close(patience + LAST_WORDS_SECONDS))
    _, left = await asyncio.wait([closing], timeout=patience)
    if left:
        log.warning("requests_ended", in_flight=gateway.app.in_flight, after_seconds=patience)
        gateway.lease_manager.stop_waiting()
        gateway.app.inference.stop_all()
    await closing


def main() -> None:
    """Read the environment and serve; a user's mistake is one line, not a traceback."""
    try:
        config = GatewayConfig.from_environment(os.environ)
        if config.listening_descriptor is None:
            _check_port(config.host, config.port)
        _check_port(config.operator_host, config.operator_port)
    except (ConfigError, OSError) as error:
        sys.exit(f"gateway: {error}")
    if config.redis_url is not None and (words := unsupported_version(config.redis_url)):
        sys.exit(f"gateway: REDIS_URL {words}")
    telemetry.configure(config.log_format)
    try:
        uvloop.run(serve(config))
    except ConfigError as error:
        sys.exit(f"gateway: {error}")
    except (sqlite3.Error, FileLocked) as error:
        sys.exit(f"gateway: cannot use the journal in {config.directory}: {error}")


def _check_port(host: str, port: int) -> None:
    """Raise OSError in words when the port is taken, before anything starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error


if __name__ == "__main__":
    main()
