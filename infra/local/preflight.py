"""Conditions that must hold before anything starts; each lack is one line."""

import importlib.util
import shutil
import socket
import sys
from pathlib import Path

import psycopg
import redis

from control.db.connection import connect
from infra.local.config import DEMO_WEIGHTS, HOST, LocalConfig, LocalError
from serving.contract.required_versions import unsupported_python
from serving.engine.vllm import installed_device
from serving.fleet.local_launcher import available_bytes

DISK_BYTES_MIN = 3 * 10**9
MEMORY_BYTES_MIN = 6 * 10**9  # one vLLM replica takes 3-4 GB, the rest of the platform 1 GB
EMBEDDER_BYTES_MIN = 10 * 10**9
"""For a second replica beside it."""
SERVER_SECONDS_MAX = 3


def check_machine(config: LocalConfig) -> None:
    """Raise LocalError that names the first thing missing."""
    check_python(sys.version_info[:2])
    check_disk(config.home)
    if config.engine == "vllm":
        check_engine(config.weights)
        check_memory(available_bytes())
    check_ports(config)
    check_servers(config)


def check_python(version: tuple[int, ...]) -> None:
    """Raise LocalError for a Python that is too old."""
    if words := unsupported_python(version):
        raise LocalError(f"Python {words}")


def check_disk(home: Path) -> None:
    """Raise LocalError when the disk under `home` is nearly full."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < DISK_BYTES_MIN:
        wanted = DISK_BYTES_MIN / 1e9
        raise LocalError(f"{folder} has {free / 1e9:.1f} GB of disk free; wanted {wanted:.0f} GB")


def check_engine(weights: str) -> None:
    """Raise LocalError when vLLM or the demo model's weights are not there."""
    if importlib.util.find_spec("vllm") is None:
        raise LocalError("vLLM is not installed in this environment; `make up` installs it")
    if weights == str(DEMO_WEIGHTS) and not (DEMO_WEIGHTS / "config.json").exists():
        raise LocalError(f"the demo model's weights are missing: {DEMO_WEIGHTS}")


def check_memory(available: int) -> None:
    """Raise LocalError when vLLM would not fit."""
    if available < MEMORY_BYTES_MIN:
        wanted = MEMORY_BYTES_MIN / 1e9
        raise LocalError(
            f"{available / 1e9:.1f} GB of memory is available; wanted {wanted:.0f} GB for vLLM"
            " (PENSTOCK_ENGINE=simulated runs without)"
        )


def fits_embedder(config: LocalConfig) -> bool:
    """Tell whether a second engine fits beside the first: on a GPU that one takes nearly all."""
    if config.is_embedder_named or config.engine != "vllm":
        return True
    return installed_device() == "cpu" and available_bytes() >= EMBEDDER_BYTES_MIN


def check_ports(config: LocalConfig) -> None:
    """Raise LocalError naming every port of ours that somebody else has."""
    elsewhere = {"PostgreSQL": config.database_url, "Redis": config.redis_url}
    ports = {name: port for name, port in config.ports.named().items() if not elsewhere.get(name)}
    taken = [f"{port} ({name})" for name, port in ports.items() if not is_free(port)]
    if taken:
        raise LocalError(
            f"taken: port {', '.join(taken)}; PENSTOCK_PORT_BASE moves all of them"
            f" (now {config.ports.base})"
        )


def check_servers(config: LocalConfig) -> None:
    """Raise LocalError when a server that was named does not answer."""
    databases = {"DATABASE_URL": config.database_url}
    databases |= {"DATABASE_OWNER_URL": config.database_owner_url}
    for name, url in databases.items():
        if url is not None and (error := database_error(url)):
            raise LocalError(f"{name}: {error}")
    if config.redis_url is not None:
        try:
            redis.from_url(config.redis_url, socket_connect_timeout=SERVER_SECONDS_MAX).ping()
        except (redis.RedisError, ValueError) as error:
            raise LocalError(f"REDIS_URL: {error}") from error


def database_error(url: str) -> str | None:
    """Return why a PostgreSQL cannot be used, in one line; None when it can."""
    try:
        connect(url, connect_timeout=SERVER_SECONDS_MAX).close()
    except psycopg.Error as error:
        return str(error).strip().splitlines()[0]
    return None


def is_free(port: int) -> bool:
    """Tell whether a port of the loopback can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
