"""The last statements of a feed: a table for each kind, to which each record is applied by
itself."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from serving.feed.changes import ChangeBatch

Record = TypeVar("Record", bound=msgspec.Struct)


class FeedTable(Protocol):
    """Takes records in. A snapshot begins, puts or retains some of them, and removes the rest as
    stale."""

    def put(self, id_: str, record: Any) -> None:
        """Put a record in the place of the last one of this id; None removes it."""

    def begin_snapshot(self) -> None:
        """Begin a snapshot: what is neither put nor retained until `remove_stale` is stale."""

    def retain(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""

    def remove_stale(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""


class RecordTable(Generic[Record]):
    """A few hundred or thousand records; `changed` hears of each what was and what is now."""

    def __init__(
        self,
        changed: Callable[[Record | None, Record | None], None] = lambda before, after: None,
    ) -> None:
        self._known: dict[str, Record] = {}
        self._changed = changed
        self._retained: set[str] = set()
        self._is_in_snapshot = False

    def get(self, id_: str) -> Record | None:
        """Return the record of an id."""
        return self._known.get(id_)

    def all(self) -> Collection[Record]:
        """Return every record, as a view of what is known at each moment."""
        return self._known.values()

    def put(self, id_: str, record: Record | None) -> None:
        """Put a record in the place of the last one of this id; None removes it."""
        before = self._known.get(id_)
        if record is None:
            self._known.pop(id_, None)
        else:
            self._known[id_] = record
            self.retain(id_)
        self._changed(before, record)

    def begin_snapshot(self) -> None:
        """Begin a snapshot: what is neither put nor retained until `remove_stale` is stale."""
        self._retained, self._is_in_snapshot = set(), True

    def retain(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""
        if self._is_in_snapshot:
            self._retained.add(id_)

    def remove_stale(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""
        for id_ in self._known.keys() - self._retained:
            self.put(id_, None)
            yield
        self._retained, self._is_in_snapshot = set(), False


class FeedMirror:
    """Tables by kind, as of `version` of `lineage`; kinds without a table are not kept."""

    def __init__(self, tables: Mapping[str, FeedTable]) -> None:
        self.version = 0
        self.lineage = ""
        self._tables = tables

    def apply(self, batch: ChangeBatch) -> None:
        """Take in a batch, keeping rejected ids as they were."""
        for _ in self.apply_in_steps(batch):
            pass

    def apply_in_steps(self, batch: ChangeBatch) -> Iterator[None]:
        """Take in a batch; the end of a snapshot pauses at each step, since it looks at everything.

        A batch is in force at once, also while more of its page is to come; the version is reached
        with the last.
        """
        if batch.snapshot:
            self._begin_or_retain(batch)
        for update in batch.updates:
            table = self._tables.get(update.kind)
            if table is not None:
                table.put(update.id, update.record)
        if not batch.is_last:
            return
        if batch.snapshot:
            for table in self._tables.values():
                yield from table.remove_stale()
        self.version, self.lineage = batch.version, batch.lineage

    def _begin_or_retain(self, batch: ChangeBatch) -> None:
        if batch.is_first:
            for table in self._tables.values():
                table.begin_snapshot()
        for bad in batch.rejected:
            if bad.kind in self._tables:
                self._tables[bad.kind].retain(bad.id)
