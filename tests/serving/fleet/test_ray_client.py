"""The process that makes the calls of Ray: one that hangs or ends is replaced. It is a process that
speaks as the agent does, since Ray is in no environment of the suite."""

import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import psutil
import pytest

from serving.fleet import ray_client
from serving.fleet.ray_client import RayClient, RayUnreachable
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.integration

AGENT = """
import json, sys
print('{"number": 0}', flush=True)
for line in sys.stdin:
    call = json.loads(line)
    if call["verb"] == "end":
        sys.exit()
    if call["verb"] != "hang":
        print(json.dumps({"number": call["number"], "problem": sys.argv[1]}), flush=True)
"""


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RayClient]:
    monkeypatch.setattr(ray_client, "AGENT", (sys.executable, "-c", AGENT))
    client = RayClient("fleet-1")
    yield client
    await client.close()


def agents() -> list[int]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if AGENT in child.cmdline():
                found.append(child.pid)
    return found


async def test_an_agent_that_hangs_is_killed_and_replaced(client: RayClient) -> None:
    assert (await client.call("look", 30)).problem == "fleet-1"
    [first] = agents()
    with pytest.raises(RayUnreachable, match="no answer"):
        await client.call("hang", 0.1)
    await eventually(lambda: first not in agents())
    assert (await client.call("look", 30)).problem == "fleet-1"
    assert client.connections == 2


async def test_an_agent_that_ends_leaves_no_call_waiting(client: RayClient) -> None:
    with pytest.raises(RayUnreachable, match="the connection ended"):
        await client.call("end", 30)
    await client.call("look", 30)
    assert client.connections == 2


async def test_closing_leaves_no_process(client: RayClient) -> None:
    await client.call("look", 30)
    await client.close()
    assert not agents()


async def test_an_agent_that_cannot_connect_is_unreachable(
    client: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_client, "AGENT", (sys.executable, "-c", ""))
    with pytest.raises(RayUnreachable, match="no connection"):
        await client.call("look", 30)
    assert client.connections == 0
