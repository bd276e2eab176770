"""Where a reader is in a snapshot that it reads page by page.

A snapshot is the state at the version that it began at, whatever is published meanwhile: the log
still holds what was overtaken since, until it is compacted, and the snapshot has to begin again.
"""

from dataclasses import dataclass


class SnapshotGone(Exception):
    """The log was compacted, or the database restored, since the snapshot began."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A snapshot, by the lineage, horizon and version it began at, and the last record told."""

    lineage: str
    horizon: int
    version: int
    kind: str = ""
    record_id: str = ""

    @property
    def text(self) -> str:
        """Return it in the words of the contract: readers give it back as it is."""
        return f"{self.lineage}/{self.horizon}/{self.version}/{self.kind}/{self.record_id}"

    @classmethod
    def of(cls, text: str) -> "Cursor":
        """Return the cursor of a text. Raises SnapshotGone for one that we would not have given."""
        match text.split("/"):
            case [lineage, horizon, version, kind, record_id]:
                if all(len(each) <= 18 and each.isdecimal() for each in (horizon, version)):
                    return cls(lineage, int(horizon), int(version), kind, record_id)
        raise SnapshotGone
