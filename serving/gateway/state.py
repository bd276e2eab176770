"""The last good state on disk: a feed page and its digest, replaced whole or not at all.

It says what records its writer knew. One of another version knew no such kinds or fields as came
since, so that following on from its version would never bring them: it only bridges the time
until everything was read anew.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.codec import ContractError, decode, encode
from serving.contract.feed import Change, Page
from serving.feed.batch import Batch, Kinds, sort_out
from serving.feed.mirror import Mirror

log = structlog.get_logger(__name__)


class Written(msgspec.Struct, frozen=True):
    """What the file holds after its digest."""

    schema: int
    page: Page
    records: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file held; with `is_current` the feed may be followed on from its version."""

    batch: Batch
    is_current: bool


@lru_cache
def fingerprint(kinds: tuple[tuple[str, type[msgspec.Struct]], ...]) -> str:
    """Return what tells a set of kinds and all of their fields from every other."""
    schemas, parts = msgspec.json.schema_components([of for _, of in kinds])
    said = [SCHEMA, [kind for kind, _ in kinds], list(schemas), _without_words(parts)]
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


def _without_words(schema: Any) -> Any:
    """Return a JSON schema without its descriptions, which are our docstrings."""
    if isinstance(schema, dict):
        return {key: _without_words(of) for key, of in schema.items() if key != "description"}
    return [_without_words(of) for of in schema] if isinstance(schema, list) else schema


def page_of(mirror: Mirror, kinds: Kinds) -> Page:
    """Return all that a mirror knows as one snapshot."""
    changes = tuple(
        Change(mirror.version, kind, id_, msgspec.Raw(encode(record)))
        for kind, of in kinds.items()
        for id_, record in mirror.all(kind, of).items()
    )
    return Page(mirror.version, snapshot=True, changes=changes, lineage=mirror.lineage)


def save(path: Path, page: Page, kinds: Kinds) -> None:
    """Write the page so that a reader finds the old one or the new one, never half."""
    data = encode(Written(SCHEMA, page, fingerprint(tuple(kinds.items()))))
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def load(path: Path, kinds: Kinds) -> Saved | None:
    """Return what was saved; None, and a log line, when there is nothing whole."""
    try:
        digest, _, data = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest().encode() != digest:
        log.error("saved_state_damaged", path=path.name)
        return None
    try:
        written = _read(data)
    except ContractError as error:
        log.error("saved_state_unreadable", path=path.name, error=str(error))
        return None
    is_current = written.records == fingerprint(tuple(kinds.items()))
    batch = sort_out(written.page, kinds)
    if not is_current:
        log.error(
            "saved_state_of_another_version",
            path=path.name,
            schema=written.schema,
            records=len(batch.updates),
            rejected=len(batch.rejected),
        )
        batch = replace(batch, is_partial=bool(batch.rejected))
    return Saved(batch, is_current)


def _read(data: bytes) -> Written:
    """Parse the file; the first version wrote the page alone. Raises ContractError."""
    try:
        return decode(data, Written)
    except ContractError:
        return Written(1, decode(data, Page))
