"""What is asked of a client's line when it may be gone already."""

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from serving.gateway.http.response import unsent_bytes

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def waiting(near: socket.socket) -> tuple[int, int]:
    """Return what waits on a line whose other end reads nothing, before and after it ends."""
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=near)
    transport.write(bytes(8 * 1024 * 1024))
    before = unsent_bytes(transport)
    transport.abort()
    await asyncio.sleep(0.05)
    return before, unsent_bytes(transport)


@pytest.mark.parametrize("loop", LOOPS)
def test_of_a_line_that_is_closed_nothing_waits(loop: str) -> None:
    made: Any = LOOPS[loop]
    near, far = socket.socketpair()
    with far, asyncio.Runner(loop_factory=made) as runner:
        before, after = runner.run(waiting(near))
    assert before > 0
    assert after == 0
