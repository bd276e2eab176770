"""Starts replicas on this host: a node each, in a session of its own, which starts the engine."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import psutil

from serving.contract.codec import NOT_JSON, encode
from serving.contract.node import NodeLaunch, NodeReport
from serving.engine.adapter import GIB
from serving.fleet.config import FleetConfig
from serving.fleet.engine_process import (
    FOLDER_VARIABLE,
    REPLICA_VARIABLE,
    ProcessGroup,
    ProcessIdentity,
    find_group,
    group_of,
)
from serving.fleet.launcher import (
    LaunchError,
    LaunchHandle,
    LaunchObservation,
    LaunchRequest,
    NoRoom,
    node_launch,
)

NODE = (sys.executable, "-m", "serving.node")
MEMBERS_SECONDS = 0.5
"""How old what is known of a group's members may be: each look reads all processes of the host."""

PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "TMPDIR", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "LD_PRELOAD"),
        *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_HUB_ETAG_TIMEOUT"),
        *("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_DISABLE_TELEMETRY", "HF_XET_CACHE"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH"),
        *("PENSTOCK_RUN_HOME", "SPT_NOENV"),
    }
)
"""What an engine sees of our environment. By the last two a local run finds what it left over;
setproctitle would wipe the first."""
PASSED_ON_PREFIXES = (
    *("LC_", "CUDA_", "NVIDIA_", "NCCL_", "VLLM_", "TORCH", "OMP_", "XDG_", "TRANSFORMERS_"),
)
SECRET_WORDS = frozenset({"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"})
"""No prefix passes on a variable with one of these words in its name, as `VLLM_API_KEY`."""

CGROUP = Path("/sys/fs/cgroup")


class LocalHandle(msgspec.Struct, frozen=True):
    """A process group of this host, the file in which its node says where it listens, and what it
    said. An engine of a release without nodes has no file, and `url` is its own.
    """

    leader: ProcessIdentity
    members: tuple[ProcessIdentity, ...] = ()
    report_file: str = ""
    url: str = ""


class LocalLauncher:
    """Nodes as children, or as what an earlier fleet left; both are known by their group."""

    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        self._reports = config.directory / "nodes"
        self._groups: dict[ProcessIdentity, ProcessGroup] = {}

    async def start(self, request: LaunchRequest) -> LaunchHandle:
        """Start a node with its engine, logging to one file. Raises LaunchError; NoRoom
        for memory."""
        require_memory(request.spec.memory_bytes)
        report_file = self._report_file(request.replica_id)
        environment = engine_environment(os.environ) | {
            REPLICA_VARIABLE: request.replica_id,
            FOLDER_VARIABLE: str(self._config.directory),
        }
        launch = node_launch(request, self._config, environment, str(report_file))
        try:
            for folder in (request.log.parent, report_file.parent):
                folder.mkdir(parents=True, exist_ok=True)
            group = _start_node(launch, environment, request.log)
        except OSError as error:
            raise LaunchError(f"{NODE[0]}: {error}") from error
        self._groups[group.leader] = group
        return _stored(LocalHandle(group.leader, report_file=str(report_file)))

    def find(self, replica_id: str) -> LaunchHandle | None:
        """Return the group that was started for a replica, by its environment."""
        group = find_group(replica_id, self._config.directory)
        if group is None:
            return None
        report_file = str(self._report_file(replica_id))
        return _stored(LocalHandle(group.leader, report_file=report_file))

    def observe(self, handle: LaunchHandle) -> LaunchObservation:
        """Return how a group does; one that is gone is collected."""
        known = msgspec.convert(handle, LocalHandle)
        group = self._group(known)
        is_alive = group.is_alive
        if is_alive:
            group.refresh(seconds_old_max=MEMBERS_SECONDS)
        is_left = is_alive or bool(group.survivors)
        url = known.url or _reported_url(known)
        if not is_left:
            self._forget(known, group)
        return LaunchObservation(
            handle=_stored(msgspec.structs.replace(known, members=group.members, url=url)),
            is_alive=is_alive,
            is_left=is_left,
            url=url,
            cpu_seconds=group.cpu_seconds,
        )

    def end(self, handle: LaunchHandle, *, at_once: bool) -> None:
        """Ask the node to have its engine finish and end, or kill the whole group."""
        group = self._group(msgspec.convert(handle, LocalHandle))
        group.refresh()
        if at_once:
            group.kill()
        else:
            group.terminate()

    async def work(self, known: Collection[str], may_end: Callable[[], Awaitable[bool]]) -> None:
        """Nothing: what was left on this host is ended when a fleet starts."""

    async def close(self) -> None:
        """Nothing is held."""

    def _group(self, handle: LocalHandle) -> ProcessGroup:
        group = self._groups.get(handle.leader)
        if group is None:
            group = self._groups[handle.leader] = ProcessGroup(handle.leader, handle.members)
        return group

    def _forget(self, handle: LocalHandle, group: ProcessGroup) -> None:
        group.reap()
        self._groups.pop(group.leader, None)
        if handle.report_file:
            with suppress(OSError):  # on a disk that takes nothing it stays
                Path(handle.report_file).unlink(missing_ok=True)

    def _report_file(self, replica_id: str) -> Path:
        return self._reports / f"{replica_id}.json"


def _start_node(launch: NodeLaunch, environment: Mapping[str, str], log: Path) -> ProcessGroup:
    """Start a node in a session of its own. Raises OSError."""
    with log.open("ab") as out, in_memory(encode(launch)) as told:
        return group_of(
            subprocess.Popen(
                NODE,
                env=environment,
                stdin=told,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )


def handle_without_node(
    leader: ProcessIdentity, members: tuple[ProcessIdentity, ...], url: str
) -> LaunchHandle:
    """Return the handle of an engine that a release without nodes started."""
    return _stored(LocalHandle(leader, members, url=url))


def engine_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that an engine may see: nothing secret."""
    return {name: value for name, value in ours.items() if _is_passed_on(name)}


def require_memory(needed_bytes: int, free_bytes: int | None = None) -> None:
    """Raise NoRoom unless so much memory may still be taken, of what is available if not told."""
    free = available_bytes() if free_bytes is None else free_bytes
    if needed_bytes > free:
        needed, left = needed_bytes / GIB, free / GIB
        raise NoRoom(f"no room: needs {needed:.1f} GiB of memory, {left:.1f} GiB is available")


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


def _is_passed_on(name: str) -> bool:
    is_secret = not SECRET_WORDS.isdisjoint(name.split("_"))
    return name in PASSED_ON or (name.startswith(PASSED_ON_PREFIXES) and not is_secret)


def _reported_url(handle: LocalHandle) -> str:
    try:
        return msgspec.json.decode(Path(handle.report_file).read_bytes(), type=NodeReport).url
    except (OSError, *NOT_JSON):
        return ""


def in_memory(data: bytes) -> BinaryIO:
    """Return a file that a child can read, and that is on no disk: the launch holds tokens."""
    file = os.fdopen(os.memfd_create("launch"), "w+b")
    file.write(data)
    file.seek(0)
    return file


def _stored(handle: LocalHandle) -> LaunchHandle:
    return dict(msgspec.to_builtins(handle))
