"""Starts engines on this machine: a few at once, after a pause that doubles with each failure,
each in a session of its own."""

import asyncio
import os
import socket
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from serving.engine.adapter import GIB, LaunchSpec
from serving.fleet.engine_process import REPLICA_VARIABLE, ProcessGroup, group_of

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


PASSED_ON = ("PATH", "HOME", "USER", "TMPDIR", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "LD_PRELOAD")
PASSED_ON_MARKS = ("PENSTOCK_RUN_HOME", "SPT_NOENV")
"""By these a local run finds what it left over; setproctitle would wipe the first."""
PASSED_ON_PREFIXES = (
    *("LC_", "LD_LIBRARY", "CUDA_", "NVIDIA_", "NCCL_", "VLLM_", "HF_", "TORCH", "OMP_", "XDG_"),
    *("SSL_", "TRANSFORMERS_"),
)
"""What an engine sees of our environment: nothing that holds a secret of Penstock's."""

CGROUP = Path("/sys/fs/cgroup")


class LaunchError(Exception):
    """An engine could not be started; the message says why."""


class NoRoom(LaunchError):
    """The machine has no place for another replica now; the message says what is missing."""


class StartRefused(Exception):
    """A replica of the deployment would not run here until the deployment changes; the message says
    what to change."""


def require_memory(wanted_bytes: int) -> None:
    """Raise NoRoom unless so much memory may be taken."""
    free = available_bytes()
    if wanted_bytes > free:
        wanted, left = wanted_bytes / GIB, free / GIB
        raise NoRoom(f"no room: needs {wanted:.1f} GiB of memory, {left:.1f} GiB is available")


def start(launch: LaunchSpec, *, replica_id: str, log: Path) -> ProcessGroup:
    """Start an engine that outlives us, logging to `log`. Raises LaunchError, NoRoom for memory."""
    require_memory(launch.memory_bytes)
    environment = engine_environment(os.environ) | dict(launch.environment)
    environment[REPLICA_VARIABLE] = replica_id
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            return group_of(
                subprocess.Popen(
                    launch.command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    except OSError as error:
        raise LaunchError(f"{launch.command[0]}: {error}") from error


def engine_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that an engine may see."""
    return {
        name: value
        for name, value in ours.items()
        if name in (*PASSED_ON, *PASSED_ON_MARKS) or name.startswith(PASSED_ON_PREFIXES)
    }


def free_port(base: int, count: int, taken: Collection[int]) -> int:
    """Return the first port from `base` on that nobody listens on. Raises NoRoom."""
    for port in range(base, base + count):
        if port not in taken and _is_free(port):
            return port
    raise NoRoom(f"no room: no port of {base} to {base + count - 1} is free")


def total_bytes() -> int:
    """Return all the memory there is: the machine's, or less if a cgroup says so."""
    machine = int(psutil.virtual_memory().total)
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
    except OSError:
        return machine
    return machine if limit == "max" else min(machine, int(limit))


def available_bytes() -> int:
    """Return the memory that may still be taken: the machine's, or less if a cgroup says so."""
    machine = int(psutil.virtual_memory().available)
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
    except OSError:
        return machine
    return machine if limit == "max" else min(machine, int(limit) - used)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
