"""What must survive the fleet itself: which processes it started, and what was wanted."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.codec import encode
from serving.contract.records import DeploymentRecord
from serving.contract.replica import State
from serving.contract.units import At
from serving.fleet.counted import NOTHING, Counted, Counters
from serving.fleet.group import Member
from serving.lock import Lock

log = structlog.get_logger(__name__)

Kept = TypeVar("Kept")


class StoredReplica(msgspec.Struct, frozen=True):
    """A replica that may still be running; one without a leader was about to be started."""

    replica_id: str
    deployment: DeploymentRecord
    url: str
    port: int
    state: State
    started_at: At
    leader: Member | None = None
    members: tuple[Member, ...] = ()
    ready_at: At | None = None
    ready_until: At | None = None
    counted: Counted | None = None
    probes: Counters = NOTHING


class StoredFleet(msgspec.Struct, frozen=True):
    """All of it. The deployments are control's last word, for a start while control is down."""

    replicas: tuple[StoredReplica, ...] = ()
    deployments: tuple[DeploymentRecord, ...] = ()
    fleet_id: str = ""
    schema: int = SCHEMA


class Store:
    """The fleet's directory: one locked, one file, replaced whole.

    `failures` counts the writes that the disk did not take; `is_behind` is true until one is made
    up for.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "fleet.json"
        self._lock: Lock | None = None
        self._written = b""
        self.failures = 0
        self.is_behind = False

    def open(self) -> StoredFleet:
        """Lock the directory and return what was stored. Raises InUse, and OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(self.directory / "lock")
        return read_file(self.path, StoredFleet, default=StoredFleet())

    def save(self, fleet: StoredFleet) -> bool:
        """Write durably, if anything changed; tell whether it is on disk. What is not is to be
        saved again: a sound engine needs no disk, only one that nobody would remember does."""
        data = encode(fleet)
        if data != self._written:
            try:
                replace_file(self.path, data)
            except OSError as error:
                self.failures += 1
                self.is_behind = True
                log.error("fleet_state_not_written", error=str(error), failures=self.failures)
                return False
        self._written = data
        self.is_behind = False
        return True

    def log_path(self, replica_id: str) -> Path:
        """Return where a replica's engine logs."""
        return self.directory / "logs" / f"{replica_id}.log"

    def close(self) -> None:
        """Unlock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def read_file(path: Path, kind: type[Kept], *, default: Kept) -> Kept:
    """Return what `replace_file` wrote, `default` without it; what is unreadable is kept aside."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return default
    except (msgspec.MsgspecError, ValueError) as error:
        aside = path.with_suffix(".unreadable")
        path.replace(aside)
        log.error("fleet_state_unreadable", kept_as=str(aside), error=str(error))
        return default


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole and durably: a crash leaves the old one or the new one."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
