"""The record of the replica feed: one running copy of an engine, as the fleet sees it."""

from typing import Literal

import msgspec

from serving.contract import SCHEMA
from serving.contract.units import At, Count, Id, Name, Tokens

State = Literal["pending", "loading", "canary", "ready", "draining", "stopped", "failed"]
"""pending → loading → canary → ready → draining → stopped; failed from any. Only `ready` gets
new work, `draining` finishes what it has."""


class ReplicaRecord(msgspec.Struct, frozen=True):
    """Where a replica listens and whether it may be given work.

    The probe tokens are what the fleet's own test generations used, over the replica's life:
    the engine counted them, no usage event did. They are up to date in snapshots only.
    """

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
    probe_input_tokens: Tokens = 0
    probe_output_tokens: Tokens = 0
    schema: int = SCHEMA
