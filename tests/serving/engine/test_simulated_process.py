"""The simulated engine as a process: its command line and its end."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process

import aiohttp
import pytest

from serving.engine.simulated.__main__ import read
from serving.engine.simulated.settings import Fault

pytestmark = pytest.mark.integration


async def start(*arguments: str) -> Process:
    command = (sys.executable, "-m", "serving.engine.simulated", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)


def test_faults_are_read_from_the_command_line() -> None:
    _, faults = read(["--fault", "die:after_chunks=3,times=2", "--fault", "hang"])
    assert faults == [Fault("die", times=2, after_chunks=3), Fault("hang")]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--fault", "explode"), "explode"),
        (("--fault", "die:after=3"), "after"),
        (("--slots", "0"), "slots"),
        (("--port", "70000"), "port"),
    ],
)
async def test_a_bad_argument_is_named_in_one_line(arguments: tuple[str, ...], named: str) -> None:
    process = await start(*arguments)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert named in said.decode().splitlines()[-1]
    assert "Traceback" not in said.decode()


async def test_it_says_where_it_listens_serves_and_ends_on_sigterm() -> None:
    process = await start("--port", "0", "--served-model-name", "demo")
    assert process.stdout is not None
    await process.stdout.readline()
    line = (await process.stdout.readline()).decode()
    url = line.split("listening on ")[1].split(" as ")[0]
    async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as answer:
        assert (await answer.json())["data"][0]["id"] == "demo"
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


async def test_a_taken_port_is_said_in_one_line() -> None:
    first = await start("--port", "0")
    assert first.stdout is not None
    await first.stdout.readline()
    port = (await first.stdout.readline()).decode().split(" as ")[0].rsplit(":", 1)[1]
    second = await start("--port", port)
    _, said = await second.communicate()
    assert said.decode().startswith("cannot listen on")
    first.terminate()
    await first.communicate()
