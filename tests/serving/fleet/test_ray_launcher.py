"""What a launcher makes of what Ray says and of its silence. The replies of the agent are made-up
data; the nodes are real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from serving.contract.credential import ServiceIdentity, issue
from serving.engine.adapter import LaunchSpec
from serving.fleet import ray_launcher
from serving.fleet.config import FleetConfig, read_config
from serving.fleet.launcher import LaunchError, LaunchRequest, NoRoom
from serving.fleet.ray_actor import ActorReport
from serving.fleet.ray_agent import NO_ROOM, ClusterReport, NodeDescription, Reply
from serving.fleet.ray_client import RayUnreachable
from serving.fleet.ray_launcher import RayLauncher
from tests.fixtures.waiting import eventually
from tests.serving.fleet.test_ray_cluster import node

SECRET = "ray-launcher-secret"


class Agent:
    """Answers as an agent does, from `actors` and `groups`; silent while `is_silent`."""

    def __init__(self) -> None:
        self.connections = 1
        self.nodes: tuple[NodeDescription, ...] = (node(),)
        self.actors: set[str] = set()
        self.groups: set[str] = set()
        self.reports: dict[str, ActorReport] = {}
        self.is_silent = False
        self.has_room = True
        self.calls: list[tuple[str, str]] = []

    async def call(self, verb: str, timeout_seconds: float, **fields: Any) -> Reply:
        await asyncio.sleep(0)
        if self.is_silent:
            raise RayUnreachable(f"no answer within {timeout_seconds:.0f} s")
        id_ = fields.get("replica_id", "")
        self.calls.append((verb, id_))
        if verb == "describe":
            return Reply(1, nodes=self.nodes)
        if verb == "start":
            if not self.has_room:
                return Reply(1, "no room: needs 1 CPU", NO_ROOM)
            self.actors.add(id_)
            self.groups.add(id_)
        if verb == "end":
            self.actors.discard(id_)
            self.groups.discard(id_)
        return Reply(1, cluster=ClusterReport(tuple(self.actors), tuple(self.groups), self.reports))

    async def close(self) -> None:
        pass


def config(folder: Path) -> FleetConfig:
    return read_config(
        {
            "PENSTOCK_INTERNAL_API_URL": "http://127.0.0.1:1",
            "PENSTOCK_INTERNAL_SECRET": SECRET,
            "PENSTOCK_FLEET_DATA_DIR": str(folder),
            "PENSTOCK_FLEET_LAUNCHER": "ray",
            "RAY_ADDRESS": "10.0.0.1:6379",
        }
    )


def request(folder: Path, replica_id: str = "r1") -> LaunchRequest:
    token = issue(SECRET, ServiceIdentity("gateway", "test"))
    spec = LaunchSpec(("engine",))
    return LaunchRequest(replica_id, spec, folder / "logs" / "r1.log", token, token)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder, self.agent = folder, Agent()
        self.launcher = RayLauncher(config(folder), self.agent)  # type: ignore[arg-type]
        self.known: set[str] = set()
        self.is_ours = True

    async def may_end(self) -> bool:
        return self.is_ours

    async def looked(self) -> None:
        """Wait until a look that begins now has ended."""
        before = self.agent.calls.count(("look", ""))
        await eventually(lambda: self.agent.calls.count(("look", "")) >= before + 2)

    async def started(self, url: str = "") -> dict[str, Any]:
        await self.looked()
        self.known.add("r1")
        handle = await self.launcher.start(request(self.folder))
        self.agent.reports["r1"] = ActorReport(is_alive=True, url=url, host="10.0.0.2", gpus=(3,))
        await self.looked()
        return handle


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(ray_launcher, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ray_launcher, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ray_launcher, "FRESH_SECONDS", 60.0)
    monkeypatch.setattr(ray_launcher, "INTERVAL_SECONDS", 0.02)
    scene = Scene(tmp_path)
    async with working(scene):
        yield scene


@asynccontextmanager
async def working(scene: Scene) -> AsyncIterator[None]:
    task = asyncio.create_task(scene.launcher.work(scene.known, scene.may_end))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await scene.launcher.close()


async def test_nothing_is_started_while_ray_is_silent(scene: Scene) -> None:
    await scene.looked()
    scene.agent.is_silent = True
    await eventually(lambda: scene.launcher._problem)
    with pytest.raises(NoRoom, match=r"no room: Ray at \S+ does not answer"):
        await scene.launcher.start(request(scene.folder))


async def test_a_cluster_that_asks_for_no_token_is_not_used(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.agent.nodes = (node(settings={"RAY_AUTH_MODE": ""}),)
    async with working(scene):
        await eventually(lambda: "is not used" in scene.launcher._problem)
        with pytest.raises(NoRoom, match="without RAY_AUTH_MODE=token"):
            await scene.launcher.start(request(scene.folder))
    assert ("look", "") not in scene.agent.calls


async def test_no_room_is_said_as_ray_says_it(scene: Scene) -> None:
    await scene.looked()
    scene.agent.has_room = False
    with pytest.raises(NoRoom, match="needs 1 CPU"):
        await scene.launcher.start(request(scene.folder))


async def test_a_start_that_nobody_answers_is_ended_once_ray_does(scene: Scene) -> None:
    await scene.looked()
    scene.agent.actors.add("r1")
    scene.agent.is_silent = True
    with pytest.raises(LaunchError):
        scene.launcher._problem = ""
        await scene.launcher.start(request(scene.folder))
    scene.agent.is_silent = False
    await eventually(lambda: ("end", "r1") in scene.agent.calls)


async def test_what_an_actor_reports_is_in_the_handle(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        handle = await scene.started(url)
        scene.agent.reports["r1"] = ActorReport(is_alive=True, url=url, log=b"loading\n")
        await eventually((scene.folder / "logs" / "r1.log").exists)
        scene.agent.reports.clear()
        seen = scene.launcher.observe(handle)
    assert seen.is_alive
    assert seen.is_left
    assert seen.url == url
    assert seen.handle["url"] == url
    assert b"loading" in (scene.folder / "logs" / "r1.log").read_bytes()


async def test_an_actor_that_ended_before_its_node_listened_is_dead(scene: Scene) -> None:
    handle = await scene.started()
    assert scene.launcher.observe(handle).is_alive
    scene.agent.actors.clear()
    scene.agent.reports.clear()
    await eventually(lambda: not scene.launcher.observe(handle).is_alive)
    assert scene.launcher.observe(handle).is_left, "its group is still there"
    scene.launcher.end(handle, at_once=True)
    await eventually(lambda: not scene.launcher.observe(handle).is_left)


async def test_a_node_that_no_longer_listens_is_dead_even_while_ray_is_silent(
    scene: Scene,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        handle = await scene.started(f"http://127.0.0.1:{listening.getsockname()[1]}")
        scene.agent.is_silent = True
        await eventually(lambda: scene.launcher._problem)
        assert scene.launcher.observe(handle).is_alive
    await eventually(lambda: not scene.launcher.observe(handle).is_alive)
    assert "no longer listens" in scene.launcher.observe(handle).loss


async def test_a_silent_node_is_dead_only_if_ray_answers(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        handle = await scene.started()
        scene.agent.is_silent = True
        await eventually(lambda: scene.launcher._problem)
        with socket.create_connection(listening.getsockname()):
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            scene.agent.reports["r1"] = ActorReport(is_alive=True, url=url)
            watched = scene.launcher._running["r1"].node
            watched.url = url
            await eventually(lambda: watched.is_silent)
            assert scene.launcher.observe(handle).is_alive, "the fleet itself may be cut off"
            scene.agent.is_silent = False
            await eventually(lambda: not scene.launcher.observe(handle).is_alive)
    scene.agent.reports.clear()
    watched.failures = 0
    assert not scene.launcher.observe(handle).is_alive, "it stays dead"


async def test_a_head_that_forgot_everything_ends_no_replica_whose_node_listens(
    scene: Scene,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        handle = await scene.started(f"http://127.0.0.1:{listening.getsockname()[1]}")
        scene.agent.actors.clear()
        scene.agent.groups.clear()
        scene.agent.reports.clear()
        await scene.looked()
        assert scene.launcher.observe(handle).is_alive


async def test_what_nobody_knows_is_ended_if_the_fleet_is_ours(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_launcher, "UNKNOWN_SECONDS", 0.05)
    handle = await scene.started()
    scene.is_ours = False
    scene.agent.actors.add("stranger")
    scene.agent.groups.add("left")
    await asyncio.sleep(0.2)
    assert "stranger" in scene.agent.actors, "a newer life's replicas are not ours to end"
    scene.is_ours = True
    await eventually(lambda: (scene.agent.actors, scene.agent.groups) == ({"r1"}, {"r1"}))
    assert scene.launcher.observe(handle).is_alive


async def test_a_replica_of_an_earlier_life_lives_until_ray_knows_better(scene: Scene) -> None:
    scene.known.add("r9")
    handle = scene.launcher.find("r9")
    assert handle is not None
    assert scene.launcher.observe(handle).is_alive
    await eventually(lambda: not scene.launcher.observe(handle).is_alive)
