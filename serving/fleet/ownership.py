"""Which life of a fleet owns its deployments: the one with the newest generation that control
granted.

A process that starts registers, and is granted a generation above all before. While control is
away it goes on with the generation that its folder keeps, if that was granted to this very folder:
whoever has the folder's lock is the only life there. Where another folder, on another host, was
granted a newer one meanwhile, the first heartbeat that control answers says so. A life without any
generation waits for control."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.fleet import (
    SUPERSEDED,
    FleetGeneration,
    FleetHeartbeat,
    FleetRegistration,
)
from serving.contract.ids import new_id
from serving.fleet.state_store import FleetStore, read_file
from serving.internal_http import Backoff, InternalCallError, InternalHttpClient

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 2.0
CALL_SECONDS = 2.0
BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_MAX_SECONDS = 5.0
MACHINE_ID = Path("/etc/machine-id")


class StoredOwnership(msgspec.Struct, frozen=True):
    """What a folder keeps of its lives: the `generation` of the last one, and whether it learned of
    a newer one elsewhere. `location` tells the folder from a copy of it, which is an
    instance of its own."""

    fleet_id: str = ""
    instance_id: str = ""
    location: str = ""
    generation: int = 0
    is_superseded: bool = False
    schema: int = SCHEMA


class FleetOwnership:
    """This process as a life of the fleet `fleet_id`, in the folder that `store` has locked.

    `generation` is 0 until it has one; `refusal` says why it has none yet.
    """

    def __init__(
        self,
        store: FleetStore,
        fleet_id: str,
        control: InternalHttpClient,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.fleet_id = fleet_id
        self.generation = 0
        self.is_superseded = False
        self.refusal = "control was not asked yet"
        self.failure_count = self._unheard_in_a_row = 0
        self._store = store
        self._path = store.directory / "ownership.json"
        self._control = control
        self._heartbeat_seconds = heartbeat_seconds
        self._backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS, jitter)
        self._stored = self._read()
        self.instance_id = self._stored.instance_id
        self._may_resume = self._stored.generation > 0 and not self._stored.is_superseded

    async def acquire(self) -> None:
        """Wait until this life has a generation: a new one, or the folder's while control is
        away."""
        failures_in_a_row = 0
        while not self.generation:
            try:
                self._hold(await self._register())
            except InternalCallError as error:
                failures_in_a_row += 1
                self._note_failure(error, failures_in_a_row)
                if self._may_resume:
                    self.generation = self._stored.generation
                    log.warning("fleet_resumed", generation=self.generation)
                else:
                    self.refusal = str(error)
                    await asyncio.sleep(self._backoff.pause_seconds(failures_in_a_row))

    async def keep(self) -> None:
        """Send heartbeats until control names a newer life; without an answer this one goes on."""
        while True:
            if not await self.confirm():
                return
            await asyncio.sleep(self._heartbeat_seconds)

    async def confirm(self) -> bool:
        """Send a heartbeat; tell whether this life is the newest, as far as control can be heard.
        Whoever starts anything asks before."""
        if self.is_superseded:
            return False
        record = FleetHeartbeat(self.fleet_id, self.instance_id, self.generation)
        try:
            await self._control.post("fleets/heartbeat", record, FleetGeneration, CALL_SECONDS)
            self._unheard_in_a_row = 0
        except InternalCallError as error:
            if error.code == SUPERSEDED:
                self._stand_back(error)
                return False
            self._unheard_in_a_row += 1
            self._note_failure(error, self._unheard_in_a_row)
        return True

    async def _register(self) -> int:
        record = FleetRegistration(self.fleet_id, self.instance_id, self._stored.generation)
        granted = await self._control.post("fleets/register", record, FleetGeneration, CALL_SECONDS)
        return granted.generation

    def _hold(self, generation: int) -> None:
        self.generation = generation
        self._keep(generation=generation, is_superseded=False)
        log.info("fleet_registered", fleet_id=self.fleet_id, generation=generation)

    def _stand_back(self, error: InternalCallError) -> None:
        if self.is_superseded:
            return
        self.is_superseded = True
        self._keep(is_superseded=True)
        log.error("fleet_superseded", generation=self.generation, error=error.says)

    def _note_failure(self, error: InternalCallError, in_a_row: int) -> None:
        self.failure_count += 1
        if in_a_row == 1:
            log.warning("fleet_not_heard", error=str(error))

    def _keep(self, **changes: int) -> None:
        """Write what the folder keeps. Where the disk does not take it, a start while control is
        away goes on with an older generation of the same instance, which control accepts."""
        self._stored = msgspec.structs.replace(self._stored, **changes)
        self._store.put(self._path, self._stored)

    def _read(self) -> StoredOwnership:
        """Return what the folder keeps of this fleet. A copy of a folder, and one of another fleet,
        is a new instance."""
        stored = read_file(self._path, StoredOwnership, default=StoredOwnership())
        location = _location(self._store.lock_path)
        if (stored.fleet_id, stored.location) == (self.fleet_id, location) and stored.instance_id:
            return stored
        return StoredOwnership(self.fleet_id, f"fl_{new_id()}", location)


def _location(lock: Path) -> str:
    """Return what tells a folder on this machine from a copy of it, by its lock."""
    try:
        machine = MACHINE_ID.read_text().strip()
    except OSError:
        machine = ""
    return f"{lock.stat().st_ino}@{machine}"
