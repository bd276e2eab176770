"""SQLite files that a process writes durably: whether one is damaged, and where it is set aside."""

import contextlib
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


PRIMARY = 0xFF
"""The part of an SQLite error code without details."""


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether the file itself is at fault, and not the disk or the statement."""
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY in DAMAGE


def set_aside(path: Path) -> Path:
    """Move a damaged file away, and return under what name it is kept."""
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    for part in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + part).rename(aside.with_name(aside.name + part))
    return aside
