"""Whether a node listens, by connections to real sockets."""

import asyncio
import socket

from serving.fleet.node_watch import FAILURES, NodeWatch
from tests.fixtures.waiting import eventually


def listener() -> socket.socket:
    found = socket.create_server(("127.0.0.1", 0))
    found.listen(64)
    return found


def watch(listening: socket.socket) -> NodeWatch:
    return NodeWatch(f"http://127.0.0.1:{listening.getsockname()[1]}")


async def attempts(node: NodeWatch, count: int = FAILURES) -> None:
    for _ in range(count):
        node.attempt()
    await eventually(lambda: not node.attempts)


async def test_a_node_that_listens_is_not_silent() -> None:
    with listener() as listening:
        node = watch(listening)
        await attempts(node)
        assert not node.is_silent


async def test_a_node_that_is_gone_is_refused_after_several_attempts() -> None:
    with listener() as listening:
        node = watch(listening)
    await attempts(node, FAILURES - 1)
    assert not node.is_silent
    await attempts(node, 1)
    assert node.is_silent
    assert node.is_refused


async def test_a_node_that_does_not_answer_is_silent_and_not_refused() -> None:
    """Beyond a full backlog Linux drops what wants to connect, as a link that is down does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        node = watch(listening)
        with socket.create_connection(listening.getsockname()):
            for _ in range(FAILURES):
                node.attempt(answer_seconds=0.05)
            await eventually(lambda: not node.attempts)
            assert node.is_silent
            assert not node.is_refused


async def test_one_answer_makes_up_for_failures() -> None:
    with listener() as listening:
        node = watch(listening)
        node.failures = FAILURES - 1
        await attempts(node, 1)
        assert node.failures == 0


async def test_what_waited_while_this_process_stood_is_no_failure() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        node = watch(listening)
        with socket.create_connection(listening.getsockname()):
            for _ in range(FAILURES):
                node.attempt(answer_seconds=5)
            await asyncio.sleep(0)
            node.forget_attempts()
            await eventually(lambda: not node.attempts)
            assert not node.is_silent
