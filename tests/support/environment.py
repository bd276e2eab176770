"""The environment of every test: values that boot each process, and reach nothing real."""

import os
import random
import socket
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from infra.local.roles import Role

NOBODY = "http://127.0.0.1:1"
"""Where nobody listens, a platform on the default ports least of all."""
OWNER = Role("penstock_tests_owner", "test")
APP = Role("penstock_tests_app", "test")
"""Roles of their own: a server given from outside may hold a real platform's too."""


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
    ports = free_port_base()
    return {
        **{
            f"PENSTOCK_{name}": f"test-{name.lower().replace('_', '-')}-{7:032}" for name in secrets
        },
        "PENSTOCK_API_CALLS_PER_MINUTE": "1000000",
        "REDIS_URL": NOBODY.replace("http", "redis"),
        "PENSTOCK_CONSOLE_URL": NOBODY,
        "PENSTOCK_API_BASE": f"{NOBODY}/v1",
        "PENSTOCK_CONTROL_HOST": "127.0.0.1",
        "PENSTOCK_CONTROL_PORT": str(ports),
        "PENSTOCK_CONTROL_INTERNAL_HOST": "127.0.0.1",
        "PENSTOCK_CONTROL_INTERNAL_PORT": str(ports + 2),
        "PENSTOCK_CONTROL_URL": NOBODY,
        "PENSTOCK_FLEET_URL": NOBODY,
        "PENSTOCK_GATEWAY_HOST": "127.0.0.1",
        "PENSTOCK_GATEWAY_PORT": str(ports + 1),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(ports + 3),
        "PENSTOCK_FLEET_HOST": "127.0.0.1",
        "PENSTOCK_FLEET_PORT": str(ports + 4),
        "PENSTOCK_REPLICA_PORT_BASE": str(ports + 10),
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
SUPERUSER_URL = "PENSTOCK_TEST_SUPERUSER_URL"
"""The same server as its superuser, who makes roles and databases: DATABASE_URL as it was given."""


def stack_folder_prefix() -> str:
    """Return how the paths of this session's stacks begin."""
    return str(Path(tempfile.gettempdir()) / f"penstock-{os.environ[SESSION]}-")


def is_own_session() -> bool:
    """Tell whether this process is the session itself, and no worker or session within it."""
    return os.environ[SESSION] == str(os.getpid())


def set_up() -> None:
    """Set what boots each process, whatever a shell exports for a platform of its own: that one's
    gateway and fleet are not ours. Workers of pytest-xdist, and sessions within one, inherit it."""
    is_first = SESSION not in os.environ
    os.environ.setdefault(SESSION, str(os.getpid()))
    if SUPERUSER_URL not in os.environ:
        _set_up_database()
    if is_first:
        os.environ.update(_values())


def _set_up_database() -> None:
    given = os.environ.get("DATABASE_URL")
    if given is None:
        folder = Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{os.getpid()}"
        os.environ[EMBEDDED_POSTGRES] = str(folder)
        given = f"postgresql://postgres:test@127.0.0.1:{free_port()}/penstock"
    os.environ[SUPERUSER_URL] = given
    os.environ["DATABASE_URL"] = url_as(APP, given)
    os.environ["DATABASE_OWNER_URL"] = url_as(OWNER, given)


def url_as(role: Role, url: str) -> str:
    """Return the address of a server with another login."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{role.name}:{role.password}@{place}").geturl()


set_up()
