"""circus and the pipes of the processes that it keeps alive."""

import asyncio
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from circus.process import Process
from circus.stream.redirector import Redirector
from tornado.ioloop import IOLoop

from infra.local.supervisor import close_output
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.integration


def has_ended(process: Process) -> bool:
    """Whether the process has ended, without collecting it."""
    found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is not None


async def end_one_process() -> tuple[bytes, Any]:
    """Run a process to its end and close its pipe as circus does, before the event loop turns.
    Return what was logged, and what became of another handler of the same file descriptor."""
    logged: list[bytes] = []
    redirector = Redirector(lambda data: logged.append(data["data"]), None, loop=IOLoop.current())
    redirector.start()
    process = Process(
        "one", 1, f"{sys.executable} -c \"print('its last words')\"", pipe_stderr=False
    )
    redirector.add_redirections(process)
    wait_until(lambda: has_ended(process), seconds=60, what="the process has ended")
    watcher = SimpleNamespace(processes={process.pid: process}, stream_redirector=redirector)
    descriptor = process.stdout.fileno()
    for _ in range(2):
        close_output(watcher, arbiter=None, hook_name="before_reap", process_pid=process.pid)
        process.close_output_channels()
    reading, writing = os.pipe()
    assert reading == descriptor
    heard = asyncio.Event()
    IOLoop.current().add_handler(reading, lambda *_: heard.set(), IOLoop.READ)
    os.write(writing, b"x")
    await asyncio.wait_for(heard.wait(), 60)
    IOLoop.current().remove_handler(reading)
    os.close(reading)
    os.close(writing)
    process._worker.wait()
    return b"".join(logged), heard


def test_the_pipe_of_an_ended_process_can_be_the_next_ones() -> None:
    logged, heard = asyncio.run(end_one_process())
    assert logged == b"its last words\n"
    assert heard.is_set()
