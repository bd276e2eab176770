"""A feed's state on disk, as tests write and read it."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from serving.contract.feed import DELETED, RECORD_OF_KIND, Change, Page
from serving.feed.batch import Batch, Kinds, parts
from serving.feed.source import Place
from serving.gateway.state import StateFile

Told = tuple[str, str, Any]
"""Kind, id, and the record as it comes: None deletes."""


@dataclass(frozen=True)
class Found:
    """What a file held; not `is_whole` where nothing of it is to be believed."""

    records: Mapping[tuple[str, str], msgspec.Struct]
    place: Place
    is_whole: bool
    is_partial: bool


def page(
    version: int,
    *told: Told,
    snapshot: bool = True,
    cursor: str = "",
    lineage: str = "one",
) -> Page:
    """Return a page as a feed would tell it."""
    changes = tuple(Change(version, kind, id_, _raw(record)) for kind, id_, record in told)
    return Page(version, snapshot, changes, lineage, cursor)


def batches(told: Page, *, begins: bool = True, kinds: Kinds = RECORD_OF_KIND) -> list[Batch]:
    """Return a page as a follower hands it on."""
    return list(parts(told, kinds, begins=begins))


def write(file: StateFile, told: Iterable[Batch]) -> None:
    """Write batches one after the other."""
    for batch in told:
        file.write([batch])


def read(path: Path, kinds: Kinds = RECORD_OF_KIND) -> Found:
    """Read a file as a gateway that starts does."""
    file, records, last = StateFile(path, kinds), {}, None
    for batch in file.read():
        records |= {(update.kind, update.id): update.record for update in batch.updates}
        last = batch
    file.close()
    is_whole = last is not None and last.is_last
    return Found(records, file.place, is_whole, is_whole and last.is_partial)


def read_as_if_killed(path: Path, folder: Path) -> Found:
    """Read what a process that writes the file would leave behind if it were killed now."""
    folder.mkdir()
    for part in path.parent.glob(f"{path.name}*"):
        shutil.copy(part, folder)
    return read(folder / path.name)


def _raw(record: Any) -> msgspec.Raw:
    return DELETED if record is None else msgspec.Raw(msgspec.json.encode(record))
