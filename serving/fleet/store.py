"""What must survive the fleet itself: which processes it started, and what was wanted."""

import fcntl
import os
from pathlib import Path
from typing import IO, TypeVar

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.codec import encode
from serving.contract.records import DeploymentRecord
from serving.contract.replica import State
from serving.contract.units import At
from serving.fleet.counted import NOTHING, Counted, Counters
from serving.fleet.group import Member

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


class DirectoryTaken(Exception):
    """Another fleet runs on this directory."""


class Store:
    """The fleet's directory: one locked, one file, replaced whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "fleet.json"
        self._lock: IO[bytes] | None = None
        self._written = b""

    def open(self) -> StoredFleet:
        """Lock the directory and return what was stored. Raises DirectoryTaken."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise DirectoryTaken(f"another fleet runs on {self.directory}") from error
        return read_file(self.path, StoredFleet, default=StoredFleet())

    def save(self, fleet: StoredFleet) -> None:
        """Write durably, if anything changed: what is lost here becomes an orphan process."""
        data = encode(fleet)
        if data == self._written:
            return
        replace_file(self.path, data)
        self._written = data

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
