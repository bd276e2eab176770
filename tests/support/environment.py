"""The environment of every test: values that boot each process, and reach nothing real."""

import os
import random
import socket
import tempfile
from pathlib import Path


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_port_base(count: int = 20) -> int:
    """Return a port from which on `count` ports are free now, below the system's own range."""
    for base in random.SystemRandom().sample(range(12_000, 32_000, count), k=200):
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise RuntimeError(f"no {count} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _values() -> dict[str, str]:
    secrets = ("DJANGO_SECRET", "INTERNAL_SECRET", "KEY_PEPPER", "SALT_SECRET", "PLAYGROUND_SECRET")
    postgres_port = free_port()
    return {
        **{
            f"PENSTOCK_{name}": f"test-{name.lower().replace('_', '-')}-{7:032}" for name in secrets
        },
        "DATABASE_URL": f"postgresql://postgres:test@127.0.0.1:{postgres_port}/penstock",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "PENSTOCK_CONSOLE_URL": "http://127.0.0.1:8700",
        "PENSTOCK_API_BASE": "http://127.0.0.1:8701/v1",
        "PENSTOCK_CONTROL_HOST": "127.0.0.1",
        "PENSTOCK_CONTROL_PORT": "8700",
        "PENSTOCK_CONTROL_INTERNAL_HOST": "127.0.0.1",
        "PENSTOCK_CONTROL_INTERNAL_PORT": "8702",
        "PENSTOCK_CONTROL_URL": "http://127.0.0.1:8702",
        "PENSTOCK_FLEET_URL": "http://127.0.0.1:8704",
        "PENSTOCK_GATEWAY_HOST": "127.0.0.1",
        "PENSTOCK_GATEWAY_PORT": "8701",
        "PENSTOCK_GATEWAY_OPERATOR_PORT": "8703",
        "PENSTOCK_FLEET_HOST": "127.0.0.1",
        "PENSTOCK_FLEET_PORT": "8704",
        "PENSTOCK_REPLICA_PORT_BASE": "8710",
        "PENSTOCK_REPLICA_COUNT_MAX": "8",
        "PENSTOCK_SIGNUP_CREDIT_NANOS": "5000000000",
        "PENSTOCK_DEBUG": "0",
        "PENSTOCK_LOG_FORMAT": "console",
    }


SESSION = "PENSTOCK_TEST_SESSION"
"""Marks every process that a test session starts, so that none is left over unseen."""
FOLDER_PREFIX = "penstock-tests-"
EMBEDDED_POSTGRES = "PENSTOCK_TEST_POSTGRES"
"""The folder of the session's own PostgreSQL; unset where DATABASE_URL was given."""


def stack_folder_prefix() -> str:
    """Return how the paths of this session's stacks begin."""
    return str(Path(tempfile.gettempdir()) / f"penstock-{os.environ[SESSION]}-")


def is_own_session() -> bool:
    """Tell whether this process is the session itself, and no worker or session within it."""
    return os.environ[SESSION] == str(os.getpid())


def set_up() -> None:
    """Fill in what the environment lacks. Workers of pytest-xdist inherit it from their parent."""
    os.environ.setdefault(SESSION, str(os.getpid()))
    if "DATABASE_URL" not in os.environ:
        folder = Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{os.getpid()}"
        os.environ[EMBEDDED_POSTGRES] = str(folder)
    for name, value in _values().items():
        os.environ.setdefault(name, value)


set_up()
