"""What a feed last stated: a table of records for each kind, in which each is applied by itself."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from serving.feed.changes import ChangeBatch

Record = TypeVar("Record", bound=msgspec.Struct)


class FeedTable(Protocol):
    """Takes records in. A snapshot begins, takes or keeps some of them, and sweeps out all else."""

    def take(self, id_: str, record: Any) -> None:
        """Put a record in the place of the last one of this id; None removes it."""

    def begin(self) -> None:
        """From now on whatever is neither taken nor kept is to be swept out."""

    def keep(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""

    def sweep(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""


class RecordTable(Generic[Record]):
    """A few hundred or thousand records; `changed` hears of each what was and what is now."""

    def __init__(
        self,
        changed: Callable[[Record | None, Record | None], None] = lambda before, after: None,
    ) -> None:
        self._known: dict[str, Record] = {}
        self._changed = changed
        self._taken: set[str] = set()
        self._is_taking_all = False

    def get(self, id_: str) -> Record | None:
        """Return the record of an id."""
        return self._known.get(id_)

    def all(self) -> Collection[Record]:
        """Return every record, as a view of what is known at each moment."""
        return self._known.values()

    def take(self, id_: str, record: Record | None) -> None:
        """Put a record in the place of the last one of this id; None removes it."""
        before = self._known.get(id_)
        if record is None:
            self._known.pop(id_, None)
        else:
            self._known[id_] = record
            self.keep(id_)
        self._changed(before, record)

    def begin(self) -> None:
        """From now on whatever is neither taken nor kept is to be swept out."""
        self._taken, self._is_taking_all = set(), True

    def keep(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""
        if self._is_taking_all:
            self._taken.add(id_)

    def sweep(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""
        for id_ in self._known.keys() - self._taken:
            self.take(id_, None)
            yield
        self._taken, self._is_taking_all = set(), False


class FeedMirror:
    """Tables by kind, as of `version` of `lineage`; kinds without a table are not kept."""

    def __init__(self, tables: Mapping[str, FeedTable]) -> None:
        self.version = 0
        self.lineage = ""
        self._tables = tables

    def apply(self, batch: ChangeBatch) -> None:
        """Take in a batch, keeping rejected ids as they were."""
        for _ in self.applying(batch):
            pass

    def applying(self, batch: ChangeBatch) -> Iterator[None]:
        """Take in a batch; the end of a snapshot pauses at each step, since it looks at everything.

        What a batch says is in force at once, also while more of its page is to come; the version
        is reached with the last.
        """
        if batch.snapshot:
            self._begin_or_keep(batch)
        for update in batch.updates:
            table = self._tables.get(update.kind)
            if table is not None:
                table.take(update.id, update.record)
        if not batch.is_last:
            return
        if batch.snapshot:
            for table in self._tables.values():
                yield from table.sweep()
        self.version, self.lineage = batch.version, batch.lineage

    def _begin_or_keep(self, batch: ChangeBatch) -> None:
        if batch.is_first:
            for table in self._tables.values():
                table.begin()
        for bad in batch.rejected:
            if bad.kind in self._tables:
                self._tables[bad.kind].keep(bad.id)
