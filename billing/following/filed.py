"""The digests of what lies in a file, as seals have them: rows hashed by the database, which hashed
them when they were sealed, and folded here, where a day needs no table of its own."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection

from billing.following.sealing import MINUTE, RECORD, ROW_DIGEST

HASH_ROWS = f"""
/* Digests of records given as JSON. */
SELECT organization_id, {MINUTE}, {ROW_DIGEST}
FROM json_populate_recordset(NULL::following_record, %s::json) ORDER BY event_id, kind
"""  # noqa: S608 -- constants of this room


@dataclass(slots=True)
class _Fold:
    """One organization's digest as far as it was read: whole minutes, and the one under way."""

    minute: datetime | None = None
    rows: Any = field(default_factory=hashlib.sha256)
    minutes: Any = field(default_factory=hashlib.sha256)

    def add(self, minute: datetime, digest: bytes) -> None:
        """Take in the next row's digest."""
        if self.minute not in (None, minute):
            self.end_minute()
        self.minute = minute
        self.rows.update(digest)

    def end_minute(self) -> None:
        """Take in the digest of the minute under way."""
        self.minutes.update(self.rows.digest())
        self.rows = hashlib.sha256()


def digests(groups: Iterable[Sequence[tuple[Any, ...]]]) -> dict[str, bytes]:
    """Return each organization's digest over records, which come by event id, a group at a time."""
    folds: dict[str, _Fold] = {}
    for rows in groups:
        for organization_id, minute, digest in _hashed(rows):
            folds.setdefault(organization_id, _Fold()).add(minute, digest)
    for fold in folds.values():
        fold.end_minute()
    return {organization_id: fold.minutes.digest() for organization_id, fold in folds.items()}


def _hashed(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, datetime, bytes]]:
    records = msgspec.json.encode([dict(zip(RECORD, row, strict=True)) for row in rows])
    with connection.cursor() as cursor:
        cursor.execute(HASH_ROWS, [records.decode()])
        yield from cursor.fetchall()
