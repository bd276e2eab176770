"""From a page as it came to the changes that may be trusted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from serving.contract import SCHEMA
from serving.contract.codec import ContractError, decode
from serving.contract.feed import FeedChange, FeedPage

Kinds = Mapping[str, type[msgspec.Struct]]
"""The kinds a reader wants, each with its record type."""
PART_CHANGES = 150
"""So many changes, decoded and applied at once, hold the loop for some 2 ms."""


class RecordChange(msgspec.Struct, frozen=True, gc=False):
    """A validated change; a record of None deletes. `raw` is the record as it came."""

    kind: str
    id: str
    record: msgspec.Struct | None
    raw: bytes | msgspec.Raw = b""


@dataclass(frozen=True, slots=True)
class RejectedChange:
    """A change whose record does not hold to the contract: the last good one stays in force."""

    kind: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """A part of what leads to `version`: of a page of changes, or of a snapshot of any number of
    pages. With the last part the version is reached, and a snapshot has replaced all but the ids
    that were updated or `rejected` in it.

    It is partial when it was saved by an older version, and not all of it is understood any more.
    """

    version: int
    snapshot: bool
    updates: tuple[RecordChange, ...] = ()
    rejected: tuple[RejectedChange, ...] = ()
    unknown_kinds: Mapping[str, int] = field(default_factory=dict)
    is_partial: bool = False
    lineage: str = ""
    is_first: bool = True
    is_last: bool = True


def parts(page: FeedPage, kinds: Kinds, *, begins: bool) -> Iterator[ChangeBatch]:
    """Validate a page part by part; `begins` where it is the first of its snapshot."""
    starts = range(0, max(len(page.changes), 1), PART_CHANGES)
    for start in starts:
        yield validate(
            page.changes[start : start + PART_CHANGES],
            kinds,
            ChangeBatch(
                page.version,
                page.snapshot,
                lineage=page.lineage,
                is_first=begins and start == 0,
                is_last=not page.cursor and start == starts[-1],
            ),
        )


def validate(changes: Sequence[FeedChange], kinds: Kinds, into: ChangeBatch) -> ChangeBatch:
    """Validate each change by itself, so that a bad record spoils no neighbour."""
    updates: list[RecordChange] = []
    rejected: list[RejectedChange] = []
    unknown: dict[str, int] = {}
    for change in changes:
        if change.kind not in kinds:
            unknown[change.kind] = unknown.get(change.kind, 0) + 1
            continue
        try:
            record = _record(change, kinds[change.kind])
        except ContractError as error:
            rejected.append(RejectedChange(change.kind, change.id, str(error)))
        else:
            updates.append(RecordChange(change.kind, change.id, record, change.record))
    return replace(into, updates=tuple(updates), rejected=tuple(rejected), unknown_kinds=unknown)


def _record(change: FeedChange, kind: type[msgspec.Struct]) -> msgspec.Struct | None:
    if change.is_deletion:
        return None
    record = decode(change.record, kind)
    schema = getattr(record, "schema", SCHEMA)
    if schema > SCHEMA:
        raise ContractError(f"{kind.__name__}: schema is {schema}; wanted at most {SCHEMA}")
    return record
