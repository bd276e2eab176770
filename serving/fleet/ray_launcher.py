"""Starts replicas in a Ray cluster: for each a placement group of one bundle and a detached actor,
which starts the node. Ray distributes; whether a replica lives its node's address tells.

Silence of Ray is not death of replicas: while it lasts nothing is started, and what is ready stays.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Never

import msgspec
import structlog

from serving.contract.codec import encode
from serving.fleet.config import FleetConfig
from serving.fleet.launcher import (
    LaunchError,
    LaunchHandle,
    LaunchObservation,
    LaunchRequest,
    NoRoom,
    node_launch,
)
from serving.fleet.node_watch import INTERVAL_SECONDS, STALL_SECONDS, NodeWatch
from serving.fleet.ray_actor import ActorReport, StartOrder
from serving.fleet.ray_agent import NO_ROOM, ClusterReport
from serving.fleet.ray_client import AGENT, RayClient, RayUnreachable
from serving.fleet.ray_cluster import bundle, refusal, warnings

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
FRESH_SECONDS = 3.0
"""How old the last look may be when a replica is started: one that is never answered hangs."""
RETRY_SECONDS = 3.0
"""Between two attempts to connect."""
CALL_SECONDS = 5.0
START_SECONDS = 90.0
DESCRIBE_SECONDS = 30.0
UNKNOWN_SECONDS = 20.0
"""How long something of the fleet may run in the cluster that nobody here asks for."""
END_AGAIN_SECONDS = 5.0


class RayHandle(msgspec.Struct, frozen=True):
    """A replica in the cluster: its actor and its group have its id for a name. The rest is what
    its actor has reported, empty until then; `log` is where the fleet keeps what its engine says.
    """

    replica_id: str
    log: str
    url: str = ""
    host: str = ""
    node_pid: int = 0
    engine_pid: int = 0
    gpus: tuple[int, ...] = ()


@dataclass(slots=True)
class RunningReplica:
    """What is known of a replica; times are monotonic seconds."""

    handle: RayHandle
    known_since: float
    node: NodeWatch
    cpu_seconds: float = 0.0
    loss: str = ""
    """Why it is dead. It stays so: its id is never given a request again."""
    is_ending: bool = False
    is_asked_to_finish: bool = False
    end_asked_at: float = float("-inf")


class RayLauncher:
    """Replicas in the cluster that RAY_ADDRESS names, in a namespace of the fleet's."""

    def __init__(self, config: FleetConfig, client: RayClient | None = None) -> None:
        self._config = config
        self._client = client or RayClient(config.fleet_id)
        self._connection = 0
        """The number of the connection whose cluster was checked."""
        self._problem = "has not answered yet"
        """Why nothing is started; empty if Ray answers."""
        self._cluster: ClusterReport | None = None
        self._looked_at = float("-inf")
        """When the look began that `_cluster` is from."""
        self._in_doubt = asyncio.Event()
        self._running: dict[str, RunningReplica] = {}
        self._unknown_since: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, request: LaunchRequest) -> LaunchHandle:
        """Start an actor with its node. Raises NoRoom for resources, and while Ray is silent;
        LaunchError where it began and failed."""
        is_fresh = time.monotonic() - self._looked_at < FRESH_SECONDS
        if problem := self._problem or ("" if is_fresh else "does not answer"):
            raise NoRoom(f"no room: Ray at {self._config.ray_address} {problem}")
        launch = node_launch(request, self._config, {}, report_file="-")
        order = StartOrder(launch, AGENT[0], version("penstock"))
        handle = RayHandle(request.replica_id, str(request.log))
        try:
            request.log.parent.mkdir(parents=True, exist_ok=True)
            reply = await self._client.call(
                "start",
                START_SECONDS,
                replica_id=request.replica_id,
                resources=bundle(request.needs),
                order=encode(order),
            )
        except OSError as error:
            raise LaunchError(f"{request.log}: {error}") from error
        except RayUnreachable as error:
            # It may run. The id is known from here on, and is ended once Ray answers.
            self._replica(handle).is_ending = True
            raise LaunchError(f"Ray at {self._config.ray_address}: {error}") from error
        if reply.kind == NO_ROOM:
            raise NoRoom(reply.problem)
        if reply.problem:
            raise LaunchError(f"Ray: {reply.problem}")
        self._replica(handle)
        return _stored(handle)

    def find(self, replica_id: str) -> LaunchHandle | None:
        """Return a handle whatever runs: the next look tells whether it does."""
        log_path = self._config.directory / "logs" / f"{replica_id}.log"
        return _stored(RayHandle(replica_id, str(log_path)))

    def observe(self, handle: LaunchHandle) -> LaunchObservation:
        """Return how a replica does, by what is known now."""
        replica = self._replica(msgspec.convert(handle, RayHandle))
        replica.loss = replica.loss or self._loss(replica)
        return LaunchObservation(
            handle=_stored(replica.handle),
            is_alive=not replica.loss,
            is_left=self._is_left(replica),
            url=replica.handle.url,
            cpu_seconds=replica.cpu_seconds,
            loss=replica.loss,
        )

    def end(self, handle: LaunchHandle, *, at_once: bool) -> None:
        """Have a replica's node finish and end, or its actor killed and its group removed."""
        replica = self._replica(msgspec.convert(handle, RayHandle))
        if at_once:
            replica.is_ending = True
            self._end(replica)
        elif not replica.is_asked_to_finish:
            replica.is_asked_to_finish = True
            self._spawn(self._call_end(replica.handle.replica_id, at_once=False))

    async def work(self, known: Collection[str], may_end: Callable[[], Awaitable[bool]]) -> None:
        """Look at the cluster and at the nodes for ever. What is not among the `known` ids is
        ended, if `may_end` says that the fleet is still ours."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_nodes())
            while True:
                await self._look()
                await self._sweep(known, may_end)
                await self._pause()

    async def close(self) -> None:
        """Leave the cluster; all replicas live on."""
        for task in self._tasks:
            task.cancel()
        await self._client.close()

    async def _pause(self) -> None:
        """Wait for the next look, which comes at once where it decides about a silent node."""
        self._in_doubt.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_SECONDS if self._problem else LOOK_SECONDS):
                await self._in_doubt.wait()

    def _replica(self, handle: RayHandle) -> RunningReplica:
        known = self._running.get(handle.replica_id)
        if known is None:
            known = RunningReplica(handle, time.monotonic(), NodeWatch(handle.url))
            self._running[handle.replica_id] = known
        return known

    def _loss(self, replica: RunningReplica) -> str:
        """Return why a replica is dead, empty if it is not known to be."""
        node, id_ = replica.node, replica.handle.replica_id
        if node.url:
            if node.is_silent and node.is_refused:
                return f"its node at {node.url} no longer listens"
            if node.is_silent and self._looked_at > node.failing_since:
                return f"its node at {node.url} is silent, while Ray answers"
            return ""
        is_seen = self._cluster is not None and self._looked_at > replica.known_since
        if is_seen and self._cluster is not None and id_ not in self._cluster.actors:
            return "its actor ended"
        return ""

    def _is_left(self, replica: RunningReplica) -> bool:
        """Tell whether anything of it is in the cluster, as far as that is known."""
        cluster, id_ = self._cluster, replica.handle.replica_id
        if cluster is None or self._looked_at <= replica.end_asked_at:
            return True
        return id_ in cluster.actors or id_ in cluster.groups

    async def _look(self) -> None:
        begun = time.monotonic()
        try:
            if not await self._is_checked():
                return
            reply = await self._client.call("look", CALL_SECONDS)
        except RayUnreachable as error:
            self._note_problem(f"does not answer: {error}")
            return
        if reply.problem or reply.cluster is None:
            self._note_problem(f"does not answer: {reply.problem}")
            return
        self._note_problem("")
        if begun > self._looked_at:
            self._cluster, self._looked_at = reply.cluster, begun
        for id_, report in reply.cluster.reports.items():
            if id_ in self._running:
                self._note_report(self._running[id_], report)

    async def _is_checked(self) -> bool:
        """Compare versions and settings once a connection; tell whether the cluster may be used.
        Raises RayUnreachable."""
        if self._connection == self._client.connections and self._connection:
            return True
        reply = await self._client.call("describe", DESCRIBE_SECONDS)
        if reply.problem:
            self._note_problem(f"does not answer: {reply.problem}")
            return False
        if found := refusal(reply.nodes, without_token=self._config.ray_without_token):
            self._note_problem(f"is not used: {found}")
            return False
        for words in warnings(reply.nodes):
            log.warning("ray_setting_missing", problem=words)
        self._connection = self._client.connections
        return True

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("ray_cluster", problem=problem or "none")
        self._problem = problem

    def _note_report(self, replica: RunningReplica, report: ActorReport) -> None:
        handle = replica.handle
        replica.cpu_seconds = report.cpu_seconds
        replica.handle = RayHandle(
            handle.replica_id,
            handle.log,
            report.url or handle.url,
            report.host,
            report.node_pid or handle.node_pid,
            report.engine_pid or handle.engine_pid,
            report.gpus,
        )
        replica.node.url = replica.handle.url
        if not report.is_alive:
            replica.loss = replica.loss or "its node ended"
        if report.log:
            try:
                with Path(handle.log).open("ab") as file:
                    file.write(report.log)
            except OSError as error:
                log.error("engine_log_not_kept", file=handle.log, error=str(error))

    async def _watch_nodes(self) -> Never:
        """Try all nodes' addresses again and again."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            now = time.monotonic()
            for replica in self._running.values():
                if now - before > STALL_SECONDS:
                    replica.node.forget_attempts()
                if replica.node.url and not replica.loss:
                    replica.node.attempt()
                    is_new = replica.node.failures and replica.node.failing_since > self._looked_at
                    if is_new and not self._problem:
                        self._in_doubt.set()
            before = now

    async def _sweep(self, known: Collection[str], may_end: Callable[[], Awaitable[bool]]) -> None:
        """End once more what was to end and is still there, and what has been there for long and
        nobody asked for."""
        if self._cluster is None or self._problem:
            return
        now, there = time.monotonic(), {*self._cluster.actors, *self._cluster.groups}
        for id_ in [id_ for id_ in self._running if id_ not in there and id_ not in known]:
            del self._running[id_]
        unknown = {id_ for id_ in there if id_ not in known}
        self._unknown_since = {id_: self._unknown_since.get(id_, now) for id_ in unknown}
        old = {id_ for id_, since in self._unknown_since.items() if now - since >= UNKNOWN_SECONDS}
        ending = {id_ for id_ in there if id_ in self._running and self._running[id_].is_ending}
        if not (old or ending) or not await may_end():
            return
        if old - ending:
            log.warning("orphans_ended", replica_ids=sorted(old - ending))
        for id_ in ending:
            self._end(self._running[id_])
        for id_ in old - ending:
            await self._call_end(id_, at_once=True)

    def _end(self, replica: RunningReplica) -> None:
        now = time.monotonic()
        if now - replica.end_asked_at >= END_AGAIN_SECONDS:
            replica.end_asked_at = now
            self._spawn(self._call_end(replica.handle.replica_id, at_once=True))

    async def _call_end(self, replica_id: str, *, at_once: bool) -> None:
        try:
            await self._client.call("end", CALL_SECONDS, replica_id=replica_id, at_once=at_once)
        except RayUnreachable as error:
            log.warning("ray_end_unanswered", replica_id=replica_id, error=str(error))
        else:
            await self._look()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _stored(handle: RayHandle) -> LaunchHandle:
    return dict(msgspec.to_builtins(handle))
