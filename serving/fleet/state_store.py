"""What must survive the fleet itself: which processes it started, and what was wanted. Each file is
replaced whole by a thread, so that no loop waits."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.codec import encode
from serving.contract.records import DeploymentRecord
from serving.file_lock import FileLock
from serving.fleet.replica import StoredReplica

log = structlog.get_logger(__name__)


Done = TypeVar("Done")


class FileWriter:
    """What is put into it is done in that order."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")

    def put(self, write: Callable[[], Done]) -> Future[Done]:
        """Have a file written; what comes of it is told by the future."""
        return self._thread.submit(write)

    def close(self) -> None:
        """Wait for what was put, and take no more."""
        self._thread.shutdown()


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole and durably: a crash leaves the old one or the new one."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


Kept = TypeVar("Kept")


class StoredFleet(msgspec.Struct, frozen=True):
    """All of it. The deployments are control's last word, for a start while control is down;
    `asleep` are those that sleep, and `load_seconds` is what the last replica of each took."""

    replicas: tuple[StoredReplica, ...] = ()
    deployments: tuple[DeploymentRecord, ...] = ()
    fleet_id: str = ""
    asleep: tuple[str, ...] = ()
    load_seconds: dict[str, float] = {}
    schema: int = SCHEMA


class FleetStore:
    """The fleet's directory: one locked, one file, replaced whole.

    `failures` counts the writes that the disk did not take; `is_behind` is true until one is made
    up for.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "fleet.json"
        self.disk = FileWriter()
        self._lock: FileLock | None = None
        self._asked = b""
        """What is on disk, or on its way there."""
        self._saved: Future[bool] = Future()
        self.failures = 0
        self.is_behind = False

    def open(self) -> StoredFleet:
        """Lock the directory and return what was stored. Raises FileLocked, and OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.directory / "lock")
        return read_file(self.path, StoredFleet, default=StoredFleet())

    def save(self, fleet: StoredFleet) -> Future[bool]:
        """Have it written durably, if anything changed; the future tells whether it is on disk.
        What is not is to be saved again: a sound engine needs no disk, only one that nobody would
        remember does."""
        data = encode(fleet)
        if data != self._asked:
            self._asked = data
            self._saved = self.disk.put(partial(self._write, data))
        return self._saved

    def _write(self, data: bytes) -> bool:
        try:
            replace_file(self.path, data)
        except OSError as error:
            self._asked = b""
            self.failures += 1
            self.is_behind = True
            log.error("fleet_state_not_written", error=str(error), failures=self.failures)
            return False
        self.is_behind = False
        return True

    def log_path(self, replica_id: str) -> Path:
        """Return where a replica's engine logs."""
        return self.directory / "logs" / f"{replica_id}.log"

    def close(self) -> None:
        """Unlock, once all is written."""
        self.disk.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def read_file(path: Path, kind: type[Kept], *, default: Kept) -> Kept:
    """Return what was written, `default` without it; what is unreadable is kept aside."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return default
    except (msgspec.MsgspecError, ValueError) as error:
        aside = path.with_suffix(".unreadable")
        path.replace(aside)
        log.error("fleet_state_unreadable", kept_as=str(aside), error=str(error))
        return default
