"""The last good state on disk: a feed page and its digest, replaced whole or not at all."""

import hashlib
import os
from pathlib import Path

import msgspec
import structlog

from serving.contract.codec import ContractError, decode, encode
from serving.contract.feed import Change, Page
from serving.feed.batch import Batch, Kinds, sort_out
from serving.feed.mirror import Mirror

log = structlog.get_logger(__name__)


def page_of(mirror: Mirror, kinds: Kinds) -> Page:
    """Return all that a mirror knows as one snapshot."""
    changes = tuple(
        Change(mirror.version, kind, id_, msgspec.Raw(encode(record)))
        for kind, of in kinds.items()
        for id_, record in mirror.all(kind, of).items()
    )
    return Page(mirror.version, snapshot=True, changes=changes)


def save(path: Path, page: Page) -> None:
    """Write the page so that a reader finds the old one or the new one, never half."""
    data = encode(page)
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def load(path: Path, kinds: Kinds) -> Batch | None:
    """Return what was saved; None, and a log line, when there is nothing whole."""
    try:
        digest, _, data = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest().encode() != digest:
        log.error("saved_state_damaged", path=path.name)
        return None
    try:
        return sort_out(decode(data, Page), kinds)
    except ContractError as error:
        log.error("saved_state_unreadable", path=path.name, error=str(error))
        return None
