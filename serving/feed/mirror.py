"""What a reader knows: the last good record of every id."""

from typing import TypeVar

import msgspec

from serving.feed.batch import Batch

Record = TypeVar("Record", bound=msgspec.Struct)


class Mirror:
    """Records by kind and id, as of `version` of `lineage`."""

    def __init__(self) -> None:
        self.version = 0
        self.lineage = ""
        self._records: dict[str, dict[str, msgspec.Struct]] = {}

    def apply(self, batch: Batch) -> None:
        """Bring the mirror to the batch's version, keeping rejected ids as they were."""
        if batch.snapshot:
            self._keep_only({(bad.kind, bad.id) for bad in batch.rejected})
        for update in batch.updates:
            known = self._records.setdefault(update.kind, {})
            if update.record is None:
                known.pop(update.id, None)
            else:
                known[update.id] = update.record
        self.version, self.lineage = batch.version, batch.lineage

    def all(self, kind: str, of: type[Record]) -> dict[str, Record]:
        """Return every record of a kind, by id."""
        known = self._records.get(kind, {})
        return {id_: record for id_, record in known.items() if isinstance(record, of)}

    def _keep_only(self, kept: set[tuple[str, str]]) -> None:
        self._records = {
            kind: {id_: record for id_, record in known.items() if (kind, id_) in kept}
            for kind, known in self._records.items()
        }
