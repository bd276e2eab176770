"""How replicas are started: what a launcher is asked and answers, what every node is told, and how
many engines start at once, after a pause that doubles with each failure."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from serving.contract.node import NodeLaunch, RouteGrant
from serving.engine.adapter import LaunchSpec, ReplicaNeeds
from serving.engine.request import PATHS, TOKENIZE_PATH
from serving.fleet.config import FleetConfig

GATEWAY_ROUTES = tuple(("POST", path) for path in (*PATHS.values(), TOKENIZE_PATH))
"""What gateways ask of an engine."""
FLEET_ROUTES = (
    *GATEWAY_ROUTES,
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("POST", "/v1/load_lora_adapter"),
    ("POST", "/v1/unload_lora_adapter"),
    ("POST", "/sleep"),
    ("POST", "/wake_up"),
    ("GET", "/is_sleeping"),
)
"""What the fleet alone may ask beyond that: to probe an engine, and to change what it holds."""

LaunchHandle = dict[str, Any]
"""What a launcher finds a replica by again, stored as JSON. Only the launcher that made it reads
it."""


class LaunchError(Exception):
    """A replica could not be started; the message says why."""


class NoRoom(LaunchError):
    """There is no place for another replica now; the message says what is missing."""


class StartRefused(Exception):
    """A replica of the deployment would not run here until the deployment changes; the message says
    what to change."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One replica to start: its engine, where it logs, the tokens that its node wants, and what it
    takes of a host."""

    replica_id: str
    spec: LaunchSpec
    log: Path
    gateway_token: str
    fleet_token: str
    needs: ReplicaNeeds = field(default_factory=ReplicaNeeds)


@dataclass(frozen=True, slots=True)
class LaunchObservation:
    """How a replica's processes do.

    `url` is where its node listens, empty until the node has said so. `cpu_seconds` is what all of
    them used of processors. `handle` is to be stored in place of the one that was observed by.
    """

    handle: LaunchHandle
    is_alive: bool
    is_left: bool
    """Whether anything of it is still there, also after it died."""
    url: str = ""
    cpu_seconds: float = 0.0
    loss: str = ""
    """Why it is dead, where that is more than that its processes ended."""


class Launcher(Protocol):
    """Starts replicas somewhere. Only `start` may wait; the others return what is known."""

    async def start(self, request: LaunchRequest) -> LaunchHandle:
        """Start a node with its engine, which outlive the fleet. Raises LaunchError."""

    def find(self, replica_id: str) -> LaunchHandle | None:
        """Return the handle of a replica that was started before its handle could be stored."""

    def observe(self, handle: LaunchHandle) -> LaunchObservation:
        """Return how a replica does."""

    def end(self, handle: LaunchHandle, *, at_once: bool) -> None:
        """Ask a replica to finish and end, or kill it; repeat it until nothing is left."""

    async def work(self, known: Collection[str], may_end: Callable[[], Awaitable[bool]]) -> None:
        """Do what there is to do for as long as the fleet is ours. What runs of it and is not among
        the `known` replicas is ended, once `may_end` has said that the fleet still is."""

    async def close(self) -> None:
        """Let go of everything; replicas live on."""


def node_launch(
    request: LaunchRequest, config: FleetConfig, environment: Mapping[str, str], report_file: str
) -> NodeLaunch:
    """Return what a node is told: `environment` is what the engine may see of its host's."""
    return NodeLaunch(
        replica_id=request.replica_id,
        command=request.spec.command,
        environment={**environment, **request.spec.environment},
        grants=(
            RouteGrant(request.gateway_token, GATEWAY_ROUTES),
            RouteGrant(request.fleet_token, FLEET_ROUTES),
        ),
        report_file=report_file,
        port_base=config.replica_port_base,
        port_count=config.replica_count_max,
        host=config.node.host,
        address=config.node.address,
        tls_certificate=config.node.tls_certificate,
        tls_key=config.node.tls_key,
    )


CORES = 2
"""Of each engine that loads: imports keep one busy, weights and warming up the others."""
WAIT_SECONDS_MAX = 120.0
"""Then one goes ahead all the same: another may never end."""


def loads_at_once() -> int:
    """Return how many engines this machine has the cores to load."""
    return max(1, len(os.sched_getaffinity(0)) // CORES)


class StartupLimiter:
    """Turns in order of arrival."""

    def __init__(self, at_once: int, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._wait_seconds_max = wait_seconds_max

    @property
    def is_full(self) -> bool:
        """Whether the next one has to wait."""
        return self._free.locked()

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Wait for a turn, though not for ever, and have it until the block ends."""
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await self._free.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            self._free.release()


STARTS_MAX = 10
WINDOW_SECONDS = 600.0


class RestartBackoff:
    """One deployment's record of starts and failures; all times are monotonic seconds."""

    def __init__(self, *, first_seconds: float, max_seconds: float) -> None:
        self.first_seconds = first_seconds
        self.max_seconds = max_seconds
        self.consecutive_failures = 0
        self._failed_at = 0.0
        self._restarts: deque[float] = deque(maxlen=STARTS_MAX)

    def record_failure(self, now: float, *, was_steady: bool) -> None:
        """Note a failure; a replica that had been ready for long forgives those before it."""
        if was_steady:
            self.reset()
        self.consecutive_failures += 1
        self._failed_at = now

    def record_start(self, now: float) -> None:
        """Note a start; only those after a failure count towards the cap."""
        if self.consecutive_failures:
            self._restarts.append(now)

    def reset(self) -> None:
        """Forget the failures, as when the deployment was changed."""
        self.consecutive_failures = 0
        self._restarts.clear()

    def pause_seconds(self, now: float) -> float:
        """Return how long to wait before the next start."""
        if not self.consecutive_failures:
            return 0.0
        doubled = self.first_seconds * 2 ** min(self.consecutive_failures - 1, 20)
        pause = self._failed_at + min(self.max_seconds, doubled) - now
        if len(self._restarts) == STARTS_MAX:
            pause = max(pause, self._restarts[0] + WINDOW_SECONDS - now)
        return max(0.0, pause)
