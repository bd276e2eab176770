"""What must survive the fleet itself: which processes it started, and what was wanted. Each file is
replaced whole by a thread, so that no loop waits.

`fleet.json` holds all of it. `replicas/` holds a file for each replica, written before its start,
from which it is adopted where `fleet.json` is lost."""

import os
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.codec import encode
from serving.contract.ids import new_id
from serving.contract.records import DEFAULT_FLEET, DeploymentRecord
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
Default = TypeVar("Default")
ASIDE_MAX = 100
"""Files kept aside with a number; the names of more are random."""


class StoredFleet(msgspec.Struct, frozen=True):
    """All of it. The deployments are control's last word, for a start while control is down;
    `asleep` are those that sleep, and `load_seconds` is what the last replica of each took."""

    replicas: tuple[StoredReplica, ...] = ()
    deployments: tuple[DeploymentRecord, ...] = ()
    asleep: tuple[str, ...] = ()
    load_seconds: dict[str, float] = {}
    schema: int = SCHEMA


class FleetStore:
    """The fleet's directory, locked.

    `failures` counts the writes that the disk did not take; `is_behind` is true until one of
    `fleet.json` is made up for.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.path = self.directory / "fleet.json"
        self.lock_path = self.directory / "lock"
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
        self._lock = FileLock(self.lock_path)
        return read_file(self.path, StoredFleet, default=StoredFleet(), upgrade=with_fleets)

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
        is_written = self._replace(self.path, data)
        if not is_written:
            self._asked = b""
        self.is_behind = not is_written
        return is_written

    def _replace(self, path: Path, data: bytes) -> bool:
        try:
            path.parent.mkdir(exist_ok=True)
            replace_file(path, data)
        except OSError as error:
            self.failures += 1
            log.error("fleet_state_not_written", error=str(error), failures=self.failures)
            return False
        return True

    def put(self, path: Path, record: msgspec.Struct) -> Future[bool]:
        """Have another of the directory's files written durably; the future tells whether it is on
        disk."""
        return self.disk.put(partial(self._replace, path, encode(record)))

    def put_replica(self, replica: StoredReplica) -> Future[bool]:
        """Have written what a replica is adopted from where the fleet's state is lost."""
        return self.put(self._replica_path(replica.replica_id), replica)

    def replica(self, replica_id: str) -> StoredReplica | None:
        """Return what was written of a replica; None where nothing was that can be read."""
        try:
            return read_file(self._replica_path(replica_id), StoredReplica, default=None)
        except OSError as error:
            log.error("fleet_state_unreadable", replica_id=replica_id, error=str(error))
            return None

    def forget_replica(self, replica_id: str) -> None:
        """Have the file of a replica removed, once what was put before is done."""
        self.disk.put(partial(self._replica_path(replica_id).unlink, missing_ok=True))

    def forget_other_replicas(self, replica_ids: Collection[str]) -> None:
        """Have the files of all replicas removed but of these."""
        for path in self._replica_path("any").parent.glob("*.json"):
            if path.stem not in replica_ids:
                self.forget_replica(path.stem)

    def _replica_path(self, replica_id: str) -> Path:
        return self.directory / "replicas" / f"{replica_id}.json"

    def log_path(self, replica_id: str) -> Path:
        """Return where a replica's engine logs."""
        return self.directory / "logs" / f"{replica_id}.log"

    def close(self) -> None:
        """Unlock, once all is written."""
        self.disk.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


class SchemaOnly(msgspec.Struct, frozen=True):
    """The part of any file that says which release wrote it."""

    schema: int = SCHEMA


def with_fleets(state: Any) -> Any:
    """Return the state as JSON has it, with a fleet for each deployment: releases without fleets
    wrote none."""
    replicas = [each["deployment"] for each in state.get("replicas", ())]
    for deployment in (*state.get("deployments", ()), *replicas):
        deployment.setdefault("fleet_id", DEFAULT_FLEET)
    return state


def read_file(
    path: Path,
    kind: type[Kept],
    *,
    default: Default,
    upgrade: Callable[[Any], Any] = lambda written: written,
) -> Kept | Default:
    """Return what was written, `default` without it. What is unreadable, or of a newer release, is
    kept aside: nothing ever overwrites it. `upgrade` brings JSON of an older release up to date."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return default
    try:
        if (written := _schema(data)) > SCHEMA:
            aside = _set_aside(path, "newer")
            log.error("fleet_state_of_newer_release", kept_as=str(aside), schema=written)
            return default
        return msgspec.convert(upgrade(msgspec.json.decode(data)), kind)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, KeyError) as error:
        aside = _set_aside(path, "unreadable")
        log.error("fleet_state_unreadable", kept_as=str(aside), error=str(error))
        return default


def _schema(data: bytes) -> int:
    """Return the schema that a file states; this release's where it is not one record."""
    try:
        return msgspec.json.decode(data, type=SchemaOnly).schema
    except msgspec.ValidationError:
        return SCHEMA


def _set_aside(path: Path, suffix: str) -> Path:
    """Move a file to the first free name with a suffix, such as `fleet.newer.2`, and return it."""
    names = (f".{suffix}", *(f".{suffix}.{number}" for number in range(2, ASIDE_MAX)))
    aside = next(
        (each for name in names if not (each := path.with_suffix(name)).exists()),
        path.with_suffix(f".{suffix}.{new_id()}"),
    )
    return path.replace(aside)
