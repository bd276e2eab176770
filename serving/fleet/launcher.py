"""Starting an engine on this machine, in a session of its own, with a log of its own."""

import os
import socket
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from serving.engine.adapter import GIB, LaunchSpec
from serving.fleet.group import REPLICA_VARIABLE, Group, group_of

PASSED_ON = ("PATH", "HOME", "USER", "TMPDIR", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "LD_PRELOAD")
PASSED_ON_MARKS = ("PENSTOCK_RUN_HOME", "SPT_NOENV")
"""By these a local run finds what it left over; setproctitle would wipe the first."""
PASSED_ON_PREFIXES = (
    *("LC_", "LD_LIBRARY", "CUDA_", "NVIDIA_", "NCCL_", "VLLM_", "HF_", "TORCH", "OMP_", "XDG_"),
    *("SSL_", "TRANSFORMERS_"),
)
"""What an engine sees of our environment: nothing that holds a secret of Penstock's."""

CGROUP = Path("/sys/fs/cgroup")


class CannotStart(Exception):
    """The machine has no place for another replica now; the message says what is missing."""


def start(launch: LaunchSpec, *, replica_id: str, log: Path) -> Group:
    """Start an engine that outlives us, logging to `log`. Raises CannotStart."""
    free = available_bytes()
    if launch.memory_bytes > free:
        wanted, left = launch.memory_bytes / GIB, free / GIB
        raise CannotStart(f"needs {wanted:.1f} GiB of memory, {left:.1f} GiB is available")
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
        raise CannotStart(f"{launch.command[0]}: {error}") from error


def engine_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that an engine may see."""
    return {
        name: value
        for name, value in ours.items()
        if name in (*PASSED_ON, *PASSED_ON_MARKS) or name.startswith(PASSED_ON_PREFIXES)
    }


def free_port(base: int, count: int, taken: Collection[int]) -> int:
    """Return the first port from `base` on that nobody listens on. Raises CannotStart."""
    for port in range(base, base + count):
        if port not in taken and _is_free(port):
            return port
    raise CannotStart(f"no port of {base} to {base + count - 1} is free")


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
