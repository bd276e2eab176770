"""What must survive the fleet itself: which processes it started, and what was wanted."""

import fcntl
import os
from pathlib import Path
from typing import IO

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.codec import ContractError, decode, encode
from serving.contract.records import DeploymentRecord
from serving.contract.replica import State
from serving.contract.units import At
from serving.fleet.group import Member

log = structlog.get_logger(__name__)


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
    probe_input_tokens: int = 0
    probe_output_tokens: int = 0


class StoredFleet(msgspec.Struct, frozen=True):
    """All of it. The deployments are control's last word, for a start while control is down."""

    replicas: tuple[StoredReplica, ...] = ()
    deployments: tuple[DeploymentRecord, ...] = ()
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
        return self._read()

    def save(self, fleet: StoredFleet) -> None:
        """Write durably, if anything changed: what is lost here becomes an orphan process."""
        data = encode(fleet)
        if data == self._written:
            return
        draft = self.path.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        self._written = data

    def log_path(self, replica_id: str) -> Path:
        """Return where a replica's engine logs."""
        return self.directory / "logs" / f"{replica_id}.log"

    def close(self) -> None:
        """Unlock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _read(self) -> StoredFleet:
        try:
            return decode(self.path.read_bytes(), StoredFleet)
        except FileNotFoundError:
            return StoredFleet()
        except ContractError as error:
            aside = self.path.with_suffix(".unreadable")
            self.path.replace(aside)
            log.error("fleet_state_unreadable", kept_as=str(aside), error=str(error))
            return StoredFleet()
