"""The record of the replica feed: one running copy of an engine, as the fleet sees it."""

from typing import Literal

import msgspec

from serving.contract import SCHEMA
from serving.contract.units import At, Count, Id, Name

State = Literal["pending", "loading", "canary", "ready", "draining", "stopped", "failed"]
"""pending → loading → canary → ready → draining → stopped; failed from any. Only `ready` gets
new work, `draining` finishes what it has."""


class ReplicaRecord(msgspec.Struct, frozen=True):
    """Where a replica listens and whether it may be given work."""

    replica_id: Id
    deployment_id: Id
    url: Name
    state: State
    slots: Count
    started_at: At
    engine: Name
    capabilities: tuple[Name, ...] = ()
    progress: str = ""
    reason: str = ""
    schema: int = SCHEMA
