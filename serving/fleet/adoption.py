"""Takes over what an earlier life of the fleet left running on this host, and ends the rest, which
would hold memory and devices for nobody. Nothing is started before."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from serving.fleet.engine_process import ProcessGroup, find_groups
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.replica import ManagedReplica, StoredReplica
from serving.fleet.state_store import FleetStore, StoredFleet

log = structlog.get_logger(__name__)

GONE_SECONDS = 30.0
"""For the kernel to end a killed group, which may have to give back a device."""
LOOK_SECONDS = 0.1

Groups = Mapping[str, Sequence[ProcessGroup]]
"""Groups of processes by replica id."""


async def adopt(
    fleet: FleetReconciler, stored: StoredFleet, generation: int
) -> list[ManagedReplica]:
    """Have a fleet adopt what it stored and what else runs of it, and state its replicas as the
    life of a generation; return the ones that are of no use any more."""
    folder = fleet.store.directory
    running = await asyncio.to_thread(find_groups, folder)
    left = fleet.adopt(with_recovered(stored, fleet.store, running))
    fleet.own(generation)
    return left


def with_recovered(stored: StoredFleet, store: FleetStore, running: Groups) -> StoredFleet:
    """Return the fleet with the running replicas that it does not name, but whose own files can be
    read."""
    known = {entry.replica_id for entry in stored.replicas}
    others = (_recovered(store, id_, running[id_]) for id_ in running if id_ not in known)
    recovered = tuple(entry for entry in others if entry is not None)
    if recovered:
        log.warning("replicas_recovered", replica_ids=[entry.replica_id for entry in recovered])
    return msgspec.structs.replace(stored, replicas=(*stored.replicas, *recovered))


def _recovered(
    store: FleetStore, replica_id: str, groups: Sequence[ProcessGroup]
) -> StoredReplica | None:
    """Return a replica as its own file has it; None without one, or where it has ended."""
    return store.replica(replica_id) if any(each.is_alive for each in groups) else None


async def end_orphans(
    folder: Path,
    kept: Collection[str],
    left: Sequence[ManagedReplica] = (),
    *,
    seconds: float = GONE_SECONDS,
) -> bool:
    """Kill all processes that the fleet of a folder started for other replicas than those `kept`,
    and what is `left` of replicas that could not be adopted, and wait until they are gone; tell
    whether that was within so many seconds."""
    deadline, told = time.monotonic() + seconds, set[str]()
    while True:
        unknown = await asyncio.to_thread(_unknown, folder, kept)
        remaining = [replica for replica in left if replica.is_left]
        if not unknown and not remaining:
            return True
        orphans = {*unknown, *(replica.replica_id for replica in remaining)}
        if orphans - told:
            log.warning("orphans_ended", replica_ids=sorted(orphans - told))
            told |= orphans
        for replica in remaining:
            replica.end(at_once=True)
        for group in (each for groups in unknown.values() for each in groups):
            group.kill()
        if time.monotonic() >= deadline:
            log.error("orphans_survive", replica_ids=sorted(orphans))
            return False
        await asyncio.sleep(LOOK_SECONDS)


def _unknown(folder: Path, kept: Collection[str]) -> Groups:
    return {id_: groups for id_, groups in find_groups(folder).items() if id_ not in kept}
