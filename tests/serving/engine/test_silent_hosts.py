"""A replica's host that falls silent: the kernel gives its connections up."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from serving.engine.http_client import ConnectionPool, ReplicaAddress
from serving.engine.https_client import open_session

WANTED = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000),
]


def found(line: Any) -> list[tuple[int, int, int]]:
    return [(level, option, line.getsockopt(level, option)) for level, option, _ in WANTED]


async def our_own(port: int) -> None:
    connection = await ConnectionPool().open(ReplicaAddress("127.0.0.1", port), 60.0)
    assert found(connection._transport.get_extra_info("socket")) == WANTED
    connection.close()


async def by_aiohttp(port: int) -> None:
    async with open_session() as session, session.get(f"http://127.0.0.1:{port}") as reply:
        assert reply.connection is not None
        assert reply.connection.transport is not None
        assert found(reply.connection.transport.get_extra_info("socket")) == WANTED


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("connect", [our_own, by_aiohttp])
def test_every_connection_to_a_replica_is_given_up_when_nobody_acknowledges(
    connect: Callable[[int], Coroutine[Any, Any, None]],
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
            with suppress(ConnectionError):
                await reader.read()
            with suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()
            done.set()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            await connect(server.sockets[0].getsockname()[1])
            async with asyncio.timeout(60):
                await done.wait()

    run(main())
