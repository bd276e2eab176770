"""`python -m tests.long.parts.ray_cases FOLDER [CASE …]`: the fleet on two hosts of a Ray cluster;
each case prints its figures and fails where they miss the target."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import aiohttp
import msgspec
import psutil

from serving.contract.codec import encode
from serving.contract.node import NodeLaunch
from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from serving.fleet.engine_process import REPLICA_VARIABLE
from serving.fleet.ray_actor import StartOrder
from serving.fleet.ray_client import RayClient
from tests.fixtures.fleet_process import Control, FleetProcess, authorized
from tests.fixtures.waiting import eventually
from tests.long.parts.ray_hosts import ADDRESSES, CLIENT_PORT, PORT, RayHosts, ray_hosts

TOKEN_SECONDS = 0.05
DEPLOYMENT = DeploymentRecord(
    deployment_id="dep_1",
    variant_id="var_1",
    fleet_id="default",
    engine="simulated",
    weights="none",
    replicas_min=1,
    replicas_max=4,
    slots=32,
    engine_arguments=("--itl-seconds", str(TOKEN_SECONDS), "--kv-cache-tokens", "1000000"),
)
TOKENS_MAX = 4_000
STREAMS = 16
"""At each replica."""
PRODUCTION = {
    "PENSTOCK_FLEET_POLL_SECONDS": "1",
    "PENSTOCK_FLEET_ANSWER_SECONDS": "2",
    "PENSTOCK_FLEET_STUCK_SECONDS": "10",
    "PENSTOCK_FLEET_IDLE_PROBE_SECONDS": "12",
    "PENSTOCK_FLEET_DRAIN_GRACE_SECONDS": "1.5",
    "PENSTOCK_FLEET_TERM_SECONDS": "5",
    "PENSTOCK_FLEET_BACKOFF_FIRST_SECONDS": "1",
}
"""The fleet's defaults."""


def host_of(replica: ReplicaRecord) -> str:
    """Return the host that a replica is on."""
    return next(host for host, address in ADDRESSES.items() if f"//{address}:" in replica.url)


def processes_of(replica_id: str) -> list[psutil.Process]:
    """Return the living processes that were started for a replica, on all hosts."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_living = process.status() != psutil.STATUS_ZOMBIE
            if is_living and process.environ().get(REPLICA_VARIABLE) == replica_id:
                found.append(process)
    return found


def actor_of(replica_id: str) -> psutil.Process:
    """Return the process of a replica's actor, which its node is a child of."""
    leaders = [one for one in processes_of(replica_id) if "serving.node" in one.cmdline()]
    parent = leaders[0].parent()
    assert parent is not None
    return parent


@dataclass
class Load:
    """Streams that run until they are told to stop; those that ended before are cut."""

    session: aiohttp.ClientSession
    tokens: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, replica: ReplicaRecord) -> None:
        """Start the streams of one replica."""
        self.tokens[replica.replica_id] = self.cut[replica.replica_id] = 0
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(self._stream(replica)) for _ in range(STREAMS)]

    async def stop(self) -> None:
        """Leave all streams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stream(self, replica: ReplicaRecord) -> None:
        message = {"role": "user", "content": "hello"}
        body = {"model": "var_1", "messages": [message], "max_tokens": TOKENS_MAX}
        body |= {"ignore_eos": True, "stream": True}
        url = f"{replica.url}/v1/chat/completions"
        with suppress(aiohttp.ClientError, OSError):
            headers = authorized(replica)
            async with self.session.post(url, json=body, headers=headers) as answer:
                answer.raise_for_status()
                async for _ in answer.content.iter_any():
                    self.tokens[replica.replica_id] += 1
        self.cut[replica.replica_id] += 1


class Scene:
    """A fleet on host `a`, as its gateways see it."""

    def __init__(
        self, hosts: RayHosts, control: Control, fleet: FleetProcess, ray: dict[str, str]
    ) -> None:
        self.hosts, self.control, self.fleet = hosts, control, fleet
        self.ray = ray
        """The settings that whoever connects to the cluster needs."""

    def deploy(self, count: int) -> None:
        """Have so many replicas wanted."""
        self.control.deploy(msgspec.structs.replace(DEPLOYMENT, replicas_min=count))

    async def seconds_until(
        self, condition: Callable[[list[ReplicaRecord]], object], what: str, seconds: float = 60
    ) -> float:
        """Return how long it takes until a condition is true of the replicas."""
        begun = time.monotonic()

        async def is_met() -> bool:
            return bool(condition(await self.fleet.replicas()))

        await eventually(is_met, what, seconds=seconds, every_seconds=0.02)
        return time.monotonic() - begun

    async def on_both(self) -> tuple[ReplicaRecord, ReplicaRecord]:
        """Return a ready replica of each host: the second is on `b`. As many are started as that
        takes; the others are ended."""
        self.deploy(2)
        found = await self.fleet.ready(2)
        hosts = {host_of(one): one for one in found}
        assert len(hosts) == 2, f"both replicas are on {[*hosts]}"
        return hosts["a"], hosts["b"]


async def answers(scene: Scene) -> str:
    """One replica through actor and node answers a request."""
    begun = time.monotonic()
    scene.deploy(1)
    [replica] = await scene.fleet.ready(1)
    took = time.monotonic() - begun
    body = {"model": "var_1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    url = f"{replica.url}/v1/chat/completions"
    async with scene.fleet.session.post(url, json=body, headers=authorized(replica)) as answer:
        assert answer.status == 200, await answer.text()
        told = await answer.json()
    async with scene.fleet.session.post(url, json=body) as answer:
        assert answer.status == 401, answer.status
    assert told["usage"]["completion_tokens"] == 5
    return f"ready after {took:.1f} s, on host {host_of(replica)}; 5 tokens of 5"


async def actor_killed(scene: Scene) -> str:
    """SIGKILL of the actor: within 10 s no process of that replica lives, and another is there."""
    scene.deploy(1)
    [replica] = await scene.fleet.ready(1)
    id_ = replica.replica_id
    assert len(processes_of(id_)) >= 2
    begun = time.monotonic()
    actor_of(id_).kill()
    out = await scene.seconds_until(
        lambda all_: all(one.replica_id != id_ or one.state != "ready" for one in all_), "out"
    )
    await eventually(lambda: not processes_of(id_), "no process", seconds=10)
    gone = time.monotonic() - begun
    [other] = await scene.fleet.ready(1)
    back = time.monotonic() - begun
    assert other.replica_id != id_
    return f"all processes gone after {gone:.2f} s, out after {out:.2f} s, back {back:.1f} s"


async def host_killed(scene: Scene) -> str:
    """All processes of a host killed under load."""
    staying, lost = await scene.on_both()
    return await _lose(scene, staying, lost, lambda: scene.hosts.kill_host("b"))


async def _lose(
    scene: Scene,
    staying: ReplicaRecord,
    lost: ReplicaRecord,
    lose: Callable[[], None],
    *,
    out_seconds: float = 2.0,
) -> str:
    load, id_ = Load(scene.fleet.session), lost.replica_id
    for replica in (staying, lost):
        load.start(replica)
    await eventually(lambda: min(load.tokens.values()) > 10 * STREAMS, "all streams run")
    known = {one.replica_id for one in await scene.fleet.replicas()}
    lose()
    begun = time.monotonic()
    out = await scene.seconds_until(
        lambda all_: all(one.replica_id != id_ or one.state != "ready" for one in all_), "out"
    )
    await scene.seconds_until(
        lambda all_: [
            one
            for one in all_
            if one.replica_id not in known and one.state not in ("pending", "failed")
        ],
        "placed again",
    )
    placed = time.monotonic() - begun
    await scene.fleet.ready(2)
    ready = time.monotonic() - begun
    cut, before = load.cut[staying.replica_id], load.tokens[staying.replica_id]
    await asyncio.sleep(1)
    assert load.tokens[staying.replica_id] > before + STREAMS, "the other host's streams stand"
    await load.stop()
    assert cut == 0, f"{cut} streams of the other host were cut"
    assert out <= out_seconds, f"out of rotation after {out:.2f} s"
    assert placed <= 5.0, f"placed again after {placed:.2f} s"
    return f"out {out:.2f} s, placed again {placed:.2f} s, ready {ready:.1f} s, 0 others cut"


async def link_down(scene: Scene) -> str:
    """The link of a host down, and back after 90 s, when Ray has given the host up."""
    return await _cut(scene, 90)


async def link_down_briefly(scene: Scene) -> str:
    """The link of a host down, and back after 30 s, when Ray has not noticed yet."""
    return await _cut(scene, 30)


async def _cut(scene: Scene, seconds: float) -> str:
    staying, lost = await scene.on_both()
    down = time.monotonic()
    # The target is 2 s: a probe that waits for its answer holds the fleet's verdict up.
    told = await _lose(scene, staying, lost, lambda: scene.hosts.cut("b"), out_seconds=3.5)
    assert processes_of(lost.replica_id), "the host that was cut off runs on"
    await asyncio.sleep(down + seconds - time.monotonic())
    scene.hosts.join("b")
    begun = time.monotonic()
    await eventually(lambda: not processes_of(lost.replica_id), "its engine ended", seconds=30)
    ended = time.monotonic() - begun
    assert ended <= 10, f"the engine of the fenced replica ran for {ended:.1f} s more"
    states = [one.state for one in await scene.fleet.replicas() if one.state == "ready"]
    assert len(states) == 2, states
    return f"{told}; its engine ended {ended:.1f} s after the link was back"


async def swept(scene: Scene) -> str:
    """An actor that nobody knows, and a group whose actor was killed, are gone within 60 s; a
    replica of the fleet's stays."""
    scene.deploy(1)
    [replica] = await scene.fleet.ready(1)
    os.environ |= scene.ray
    client = RayClient("default")
    try:
        for id_ in ("stranger", "left"):
            launch = NodeLaunch(id_, ("sleep", "600"), {}, (), "-", 8_990, 9)
            order = encode(StartOrder(launch, sys.executable, version("penstock")))
            reply = await client.call(
                "start", 60, replica_id=id_, resources={"CPU": 1.0}, order=order
            )
            assert not reply.problem, reply.problem
        actor_of("left").kill()
        begun = time.monotonic()

        async def is_swept() -> bool:
            cluster = (await client.call("look", 10)).cluster
            assert cluster is not None
            assert replica.replica_id in cluster.actors
            return {*cluster.actors, *cluster.groups} == {replica.replica_id}

        await eventually(is_swept, "both removed", seconds=60, every_seconds=0.5)
        took = time.monotonic() - begun
        await eventually(lambda: not processes_of("stranger"), "no process", seconds=10)
    finally:
        await client.close()
    assert (await scene.fleet.ready(1))[0].replica_id == replica.replica_id
    return f"a stranger and a group without an actor removed after {took:.0f} s"


async def head_away(scene: Scene) -> str:
    """The head killed, and started again after 10 s, with the settings that this takes."""
    return await _lose_head(scene, 10)


async def head_away_long(scene: Scene) -> str:
    """The head killed, and started again after 90 s."""
    return await _lose_head(scene, 90)


async def _lose_head(scene: Scene, seconds: float) -> str:
    first, second = await scene.on_both()
    load = Load(scene.fleet.session)
    for replica in (first, second):
        load.start(replica)
    await eventually(lambda: min(load.tokens.values()) > 10 * STREAMS, "all streams run")
    known = {one.replica_id for one in await scene.fleet.replicas()}
    scene.hosts.kill_head()
    await asyncio.sleep(seconds / 2)
    scene.deploy(3)
    await asyncio.sleep(seconds / 2)
    waiting = [one for one in await scene.fleet.replicas() if one.replica_id not in known]
    assert [one.state for one in waiting] == ["pending"], waiting
    assert "no room: Ray" in waiting[0].reason, waiting
    begun = time.monotonic()
    scene.hosts.start_head()
    await scene.fleet.ready(3)
    took = time.monotonic() - begun
    await asyncio.sleep(10)
    ids = {one.replica_id for one in await scene.fleet.replicas() if one.state == "ready"}
    assert known <= ids, "a replica was replaced"
    await load.stop()
    cut = sum(load.cut.values())
    assert cut == 0, f"{cut} streams were cut"
    return f"0 of {2 * STREAMS} streams cut; a third replica ready {took:.1f} s after the head"


CASES: dict[str, Callable[[Scene], Awaitable[str]]] = {
    "answers": answers,
    "answers-by-client": answers,
    "actor-killed": actor_killed,
    "host-killed": host_killed,
    "head-away-10": head_away,
    "link-down-30": link_down_briefly,
    "link-down-90": link_down,
    "sweep": swept,
    "head-away-90": head_away_long,
}

BY_CLIENT = frozenset({"answers-by-client"})
"""The cases in which the fleet's host is no node of the cluster's, by Ray's account."""


@asynccontextmanager
async def scene_on(hosts: RayHosts, folder: Path, address: str) -> AsyncIterator[Scene]:
    """Run control's stand-in and a fleet on host `a`."""
    control = Control()
    await control.start()
    ray = {name: value for name, value in hosts.environment.items() if name.startswith("RAY_")}
    ray["RAY_ADDRESS"] = address
    fleet = FleetProcess(
        control,
        folder / "fleet",
        **(PRODUCTION | ray),
        PENSTOCK_FLEET_LAUNCHER="ray",
    )
    try:
        await fleet.start()
        yield Scene(hosts, control, fleet, ray)
    finally:
        await fleet.clear_up()
        await control.stop()


async def run_case(name: str, hosts: RayHosts, folder: Path) -> str:
    """Run one case on hosts of its own."""
    head = ADDRESSES["a"]
    address = f"ray://{head}:{CLIENT_PORT}" if name in BY_CLIENT else f"{head}:{PORT}"
    async with scene_on(hosts, folder, address) as scene:
        return await CASES[name](scene)


def main() -> int:
    """Run the cases that are named, or all; return 1 if one failed."""
    folder, *names = sys.argv[1:]
    is_failed = False
    for name in names or CASES:
        # Short: the paths of Ray's sockets have an end.
        place = Path(tempfile.mkdtemp(prefix="ray-"))
        try:
            with ray_hosts(place) as hosts:
                print(f"  {name}: {asyncio.run(run_case(name, hosts, place))}", flush=True)
        except AssertionError as error:
            is_failed = True
            kept = Path(folder) / name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(place, kept, ignore=shutil.ignore_patterns("ray"))
            print(f"  {name}: failed: {error} (logs: {kept})", flush=True)
        shutil.rmtree(place, ignore_errors=True)
    return 1 if is_failed else 0


if __name__ == "__main__":
    sys.exit(main())
