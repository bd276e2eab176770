"""A process that has no file left for a new connection: it goes on, on the loop that it runs on."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from serving.gateway.dialects.openai.envelope import error_reply
from serving.gateway.http.connection_limits import ConnectionLimits
from serving.gateway.http.response import Exchange
from serving.gateway.http.server import HttpServer
from tests.fixtures.raw_http import RawClient


async def app(exchange: Exchange) -> None:
    exchange.start(200, [])
    exchange.end(b"served")


@contextmanager
def no_file_left() -> Iterator[None]:
    """Open files until this process may open no more; close them again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY)]
    highest = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                opened.append(os.dup(opened[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in opened:
            os.close(file)


async def one_too_many() -> tuple[bytes, bytes]:
    """Return what a client gets while no file is left, and what the next gets after that."""
    server = HttpServer(app, ConnectionLimits(10), error_reply)
    await server.start("127.0.0.1", 0)
    with socket.socket() as late:
        late.setblocking(False)
        with no_file_left():
            await asyncio.get_running_loop().sock_connect(late, ("127.0.0.1", server.port))
            async with asyncio.timeout(60):
                first = await asyncio.get_running_loop().sock_recv(late, 100)
    async with RawClient(f"http://127.0.0.1:{server.port}") as client:
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        second = await client.read_all()
    await server.close(60)
    return first, second


def test_a_client_for_which_there_is_no_file_is_closed_and_the_next_is_served() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        first, second = runner.run(one_too_many())
    assert first == b""
    assert second.startswith(b"HTTP/1.1 200 OK\r\n")
    assert second.endswith(b"served")
