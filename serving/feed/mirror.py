"""What a reader knows: the last good record of every id, in a table for each kind."""

from collections.abc import Iterator, Mapping

from serving.feed.batch import Batch
from serving.feed.table import Table


class Mirror:
    """Tables by kind, as of `version` of `lineage`; kinds without a table are not kept."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self.version = 0
        self.lineage = ""
        self._tables = tables

    def apply(self, batch: Batch) -> None:
        """Take in a batch, keeping rejected ids as they were."""
        for _ in self.applying(batch):
            pass

    def applying(self, batch: Batch) -> Iterator[None]:
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

    def _begin_or_keep(self, batch: Batch) -> None:
        if batch.is_first:
            for table in self._tables.values():
                table.begin()
        for bad in batch.rejected:
            if bad.kind in self._tables:
                self._tables[bad.kind].keep(bad.id)
