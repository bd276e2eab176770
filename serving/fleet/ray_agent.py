"""`python -m serving.fleet.ray_agent`: the fleet's side of Ray, in a process of its own.

Ray's calls block while its head is away, and Ray may end the process that uses it. So the fleet
starts this one, writes a `Call` a line to its standard input, reads a `Reply` a line, and kills it
where it no longer answers. All replicas are detached: they live on.
"""

import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import msgspec

from serving.contract.codec import encode
from serving.fleet.ray_actor import ActorOnRay, ActorReport

THREADS = 16
ROOM_SECONDS = 2.0
"""How long a group may stay pending until there is no room for it."""
BEGIN_SECONDS = 60.0
"""For Ray to start an actor's process, and for that to start the node."""
LOOK_SECONDS = 0.25
"""For actors to answer; those that do not are passed over."""
DESCRIBE_SECONDS = 10.0
SETTINGS = (
    "RAY_AUTH_MODE",
    "RAY_REDIS_ADDRESS",
    "RAY_gcs_rpc_server_reconnect_timeout_s",
)
"""What is read of each node's environment; the address of Redis may hold a password, so that only
whether it is set is passed on."""
NO_ROOM, FAILED = "no room", "failed"


class Call(msgspec.Struct, frozen=True):
    """One call: a number of the caller's, the name of a verb and its arguments."""

    number: int
    verb: str
    replica_id: str = ""
    resources: dict[str, float] = {}
    order: bytes = b""
    at_once: bool = True


class NodeDescription(msgspec.Struct, frozen=True):
    """A node of the cluster as a task found it."""

    address: str
    is_head: bool
    python: str
    penstock: str
    settings: dict[str, str]


class ClusterReport(msgspec.Struct, frozen=True):
    """What the cluster has of a fleet: ids of replicas with a living actor, with a group, and what
    actors said of themselves."""

    actors: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    reports: dict[str, ActorReport] = {}


class Reply(msgspec.Struct, frozen=True):
    """What came of a call; `problem` is empty unless it failed, and `kind` then says how."""

    number: int
    problem: str = ""
    kind: str = ""
    nodes: tuple[NodeDescription, ...] = ()
    cluster: ClusterReport | None = None


class AgentCallFailed(Exception):
    """A call came to nothing; the message says why, `kind` whether room is missing."""

    def __init__(self, problem: str, kind: str = FAILED) -> None:
        super().__init__(problem)
        self.kind = kind


def describe_host() -> dict[str, Any]:
    """Return what a host has, as a task of Ray's."""
    environment = {name: os.environ.get(name, "") for name in SETTINGS}
    environment["RAY_REDIS_ADDRESS"] = "set" if environment["RAY_REDIS_ADDRESS"] else ""
    return {
        "python": platform.python_version(),
        "penstock": version("penstock"),
        "settings": environment,
    }


class RayAgent:
    """Answers calls about one fleet's replicas."""

    def __init__(self, ray: Any, fleet_id: str) -> None:
        self._ray = ray
        self._namespace = namespace_of(fleet_id)
        self._prefix = f"{self._namespace}/"
        self._handles: dict[str, Any] = {}
        self.verbs: dict[str, Callable[[Call], Reply]] = {
            "describe": self.describe,
            "start": self.start,
            "look": self.look,
            "end": self.end,
        }

    def describe(self, call: Call) -> Reply:
        """Return the nodes of the cluster, by a task on each; one that was cut off is left out."""
        ray, nodes = self._ray, [node for node in self._ray.nodes() if node["Alive"]]
        task = ray.remote(num_cpus=0, max_retries=0)(describe_host)
        asked = {
            task.options(scheduling_strategy=self._on_node(node["NodeID"])).remote(): node
            for node in nodes
        }
        done, _ = ray.wait([*asked], num_returns=len(asked), timeout=DESCRIBE_SECONDS)
        if not done:
            raise AgentCallFailed("no node ran a task")
        found = tuple(
            NodeDescription(
                address=asked[one]["NodeManagerAddress"],
                is_head="node:__internal_head__" in asked[one]["Resources"],
                **ray.get(one),
            )
            for one in done
        )
        return Reply(call.number, nodes=found)

    def start(self, call: Call) -> Reply:
        """Start a replica: its group, its actor, its node."""
        util, name = self._ray.util, self._prefix + call.replica_id
        group = util.placement_group([call.resources], name=name, lifetime="detached")
        try:
            self._await_room(group)
            actor = (
                self._ray.remote(ActorOnRay)
                .options(
                    name=call.replica_id,
                    namespace=self._namespace,
                    lifetime="detached",
                    max_restarts=0,
                    max_concurrency=4,
                    num_cpus=call.resources.get("CPU", 0),
                    num_gpus=call.resources.get("GPU", 0),
                    scheduling_strategy=self._in_group(group),
                )
                .remote()
            )
            if problem := self._ray.get(actor.begin.remote(call.order), timeout=BEGIN_SECONDS):
                raise AgentCallFailed(problem)
        except BaseException:
            self._remove(call.replica_id, group)
            raise
        self._handles[call.replica_id] = actor
        return Reply(call.number)

    def look(self, call: Call) -> Reply:
        """Return what the cluster has of the fleet."""
        ray = self._ray
        named = ray.util.list_named_actors(all_namespaces=True)
        actors = [each["name"] for each in named if each["namespace"] == self._namespace]
        self._handles = {id_: actor for id_, actor in self._handles.items() if id_ in actors}
        asked = {}
        for id_ in actors:
            with suppress(ValueError):  # It has ended meanwhile.
                asked[self._handle(id_).look.remote()] = id_
        reports = {}
        done = ray.wait([*asked], num_returns=len(asked), timeout=LOOK_SECONDS)[0] if asked else ()
        for one in done:
            with suppress(ray.exceptions.RayError):
                reports[asked[one]] = msgspec.json.decode(ray.get(one), type=ActorReport)
        return Reply(
            call.number, cluster=ClusterReport(tuple(actors), tuple(self._groups()), reports)
        )

    def end(self, call: Call) -> Reply:
        """End a replica: its actor and its group; or only ask its engine to finish."""
        if call.at_once:
            self._remove(call.replica_id, None)
        else:
            with suppress(ValueError):
                self._handle(call.replica_id).finish.remote()
        return Reply(call.number)

    def _await_room(self, group: Any) -> None:
        """Return once a group has its bundle. Its state is read: `ready` would wait for ever."""
        deadline = time.monotonic() + ROOM_SECONDS
        while True:
            row = self._ray.util.placement_group_table(group)
            if row["state"] == "CREATED":
                return
            if is_without_room(row) or time.monotonic() >= deadline:
                raise AgentCallFailed(missing(row, self._ray.nodes()), NO_ROOM)
            time.sleep(0.02)

    def _remove(self, replica_id: str, group: Any) -> None:
        with suppress(ValueError):
            self._ray.kill(self._handle(replica_id), no_restart=True)
        self._handles.pop(replica_id, None)
        if group is None and replica_id in self._groups():
            group = self._ray.util.get_placement_group(self._prefix + replica_id)
        if group is not None:
            self._ray.util.remove_placement_group(group)

    def _groups(self) -> list[str]:
        """Return the ids of replicas that have a group."""
        return group_names(self._ray.util.placement_group_table(), self._prefix)

    def _handle(self, replica_id: str) -> Any:
        """Return an actor. Raises ValueError without one."""
        if replica_id not in self._handles:
            self._handles[replica_id] = self._ray.get_actor(replica_id, namespace=self._namespace)
        return self._handles[replica_id]

    def _in_group(self, group: Any) -> Any:
        strategies = self._ray.util.scheduling_strategies
        return strategies.PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=0
        )

    def _on_node(self, node_id: str) -> Any:
        strategies = self._ray.util.scheduling_strategies
        return strategies.NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)


def namespace_of(fleet_id: str) -> str:
    """Return the namespace of a fleet's actors, and what the names of its groups begin with."""
    return f"penstock-{fleet_id}"


def group_names(table: dict[str, Any], prefix: str) -> list[str]:
    """Return what follows the prefix in the names of the groups of a table that are not removed."""
    return [
        row["name"].removeprefix(prefix)
        for row in table.values()
        if row["name"].startswith(prefix) and row["state"] != "REMOVED"
    ]


def is_without_room(row: dict[str, Any]) -> bool:
    """Tell whether a group of a table waits for resources that no node has free."""
    state = row.get("stats", {}).get("scheduling_state", "")
    return row["state"] == "PENDING" and state in ("NO_RESOURCES", "INFEASIBLE")


def missing(row: dict[str, Any], nodes: list[dict[str, Any]]) -> str:
    """Return what a group lacks, in words."""
    wanted = ", ".join(
        f"{amount:g} {name}"
        for bundle in row["bundles"].values()
        for name, amount in bundle.items()
    )
    alive = sum(node["Alive"] for node in nodes)
    return f"no room: needs {wanted} on one node, and none of {alive} has it free"


def connect(fleet_id: str) -> RayAgent:
    """Return an agent of the cluster that RAY_ADDRESS names. Raises ConnectionError and others of
    Ray's."""
    import ray
    import ray.util.scheduling_strategies

    ray.init(
        address=os.environ["RAY_ADDRESS"],
        namespace=namespace_of(fleet_id),
        log_to_driver=False,
        logging_level="ERROR",
    )
    return RayAgent(ray, fleet_id)


def answer(agent: RayAgent, call: Call) -> Reply:
    """Return the reply to a call, whatever Ray raises."""
    try:
        return agent.verbs[call.verb](call)
    except AgentCallFailed as failure:
        return Reply(call.number, str(failure), failure.kind)
    except Exception as error:  # Ray raises what it likes
        return Reply(call.number, f"{type(error).__name__}: {error}", FAILED)


def main() -> None:
    """Answer until the end of standard input."""
    replies, lock = sys.stdout.buffer, threading.Lock()
    # Ray prints to standard output.
    sys.stdout = sys.stderr
    agent = connect(sys.argv[1])

    def work(call: Call) -> None:
        line = encode(answer(agent, call)) + b"\n"
        with lock:
            replies.write(line)
            replies.flush()

    with lock:
        replies.write(encode(Reply(0)) + b"\n")
        replies.flush()
    threads = ThreadPoolExecutor(THREADS)
    for line in sys.stdin.buffer:
        threads.submit(work, msgspec.json.decode(line, type=Call))
    # Without a goodbye: threads may wait for Ray, and what they started is to live on.
    os._exit(0)


if __name__ == "__main__":
    main()
