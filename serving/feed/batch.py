"""From a page as it came to the changes that may be trusted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from serving.contract import SCHEMA
from serving.contract.codec import ContractError, decode
from serving.contract.feed import Change, Page

Kinds = Mapping[str, type[msgspec.Struct]]
"""The kinds a reader wants, each with its record type."""


@dataclass(frozen=True, slots=True)
class Update:
    """A validated change; a record of None deletes."""

    kind: str
    id: str
    record: msgspec.Struct | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """A change whose record does not hold to the contract: the last good one stays in force."""

    kind: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything up to `version`. A snapshot replaces all but the `rejected` ids.

    It is partial when it was saved by an older version, and not all of it is understood any more.
    """

    version: int
    snapshot: bool
    updates: tuple[Update, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    unknown_kinds: Mapping[str, int] = field(default_factory=dict)
    is_partial: bool = False
    lineage: str = ""


def sort_out(page: Page, kinds: Kinds) -> Batch:
    """Validate each change by itself, so that a bad record spoils no neighbour."""
    updates: list[Update] = []
    rejected: list[Rejection] = []
    unknown: dict[str, int] = {}
    for change in page.changes:
        if change.kind not in kinds:
            unknown[change.kind] = unknown.get(change.kind, 0) + 1
            continue
        try:
            updates.append(Update(change.kind, change.id, _record(change, kinds[change.kind])))
        except ContractError as error:
            rejected.append(Rejection(change.kind, change.id, str(error)))
    return Batch(
        page.version,
        page.snapshot,
        tuple(updates),
        tuple(rejected),
        unknown,
        lineage=page.lineage,
    )


def _record(change: Change, kind: type[msgspec.Struct]) -> msgspec.Struct | None:
    if change.is_deletion:
        return None
    record = decode(change.record, kind)
    schema = getattr(record, "schema", SCHEMA)
    if schema > SCHEMA:
        raise ContractError(f"{kind.__name__}: schema is {schema}; wanted at most {SCHEMA}")
    return record
