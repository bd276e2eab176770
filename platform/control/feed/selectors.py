"""Reads the change feed: the changes after a version, or the whole state as a snapshot, page by
page."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import msgspec
from django.db import connection, transaction

from control.feed.database_identity import current_database_id
from control.feed.models import CompactionHorizon, PublishedChange
from serving.contract import feed

CHANGES_MAX = 5_000
"""The most changes in one page outside a snapshot."""
# The newest change of each record up to a version, without deletions, after a record.
STATE = """
SELECT version, kind, record_id, record FROM (
    SELECT DISTINCT ON (kind, record_id) version, kind, record_id, record FROM feed_published_change
    WHERE version <= %(version)s AND (kind, record_id) > (%(kind)s, %(record_id)s)
      AND (%(kinds)s::text[] IS NULL OR kind = ANY(%(kinds)s))
    ORDER BY kind, record_id, version DESC
) AS newest WHERE record IS NOT NULL ORDER BY kind, record_id LIMIT %(limit)s
"""
# The newest change of each record of some kinds, without deletions; %(ids)s of NULL means all.
RECORDS = """
SELECT kind, record_id, record FROM (
    SELECT DISTINCT ON (kind, record_id) kind, record_id, record FROM feed_published_change
    WHERE kind = ANY(%(kinds)s) AND (%(ids)s::text[] IS NULL OR record_id = ANY(%(ids)s))
    ORDER BY kind, record_id, version DESC
) AS newest WHERE record IS NOT NULL
"""
LAST = "SELECT coalesce(max(version), 0) FROM feed_published_change"


class FeedCursorExpired(Exception):
    """The log was compacted, or the database restored, since the snapshot began."""


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """A reader's position in a snapshot: the lineage, horizon and version at its beginning, and the
    last record sent.

    A snapshot is the state at that version, whatever is published meanwhile, since the log still
    holds the superseded changes. Once they are compacted, the snapshot has to begin again.
    """

    lineage: str
    horizon: int
    version: int
    kind: str = ""
    record_id: str = ""

    @property
    def text(self) -> str:
        """The cursor as text in the contract's format, which readers return unchanged."""
        return f"{self.lineage}/{self.horizon}/{self.version}/{self.kind}/{self.record_id}"

    @classmethod
    def of(cls, text: str) -> "FeedCursor":
        """Return the cursor of a text. Raises FeedCursorExpired for an invalid one."""
        match text.split("/"):
            case [lineage, horizon, version, kind, record_id]:
                if all(len(each) <= 18 and each.isdecimal() for each in (horizon, version)):
                    return cls(lineage, int(horizon), int(version), kind, record_id)
        raise FeedCursorExpired


@dataclass(frozen=True, slots=True)
class FeedQuery:
    """A reader's query: the changes after a version, of a lineage (None: of any) and of some kinds
    (None: of all), a snapshot in pages of `limit` changes (None: in one); or with a `cursor` its
    next page."""

    after: int
    lineage: str | None = None
    kinds: tuple[str, ...] | None = None
    limit: int | None = None
    cursor: FeedCursor | None = None


def page_for(asked: FeedQuery) -> feed.FeedPage:
    """Return a page of changes, or of a snapshot: for version 0, for another lineage than the
    database's (which was restored from a backup since), for a version before the horizon, and for
    one that this database never gave. Raises FeedCursorExpired."""
    with transaction.atomic(), connection.cursor() as cursor:
        # The whole page is read from one state of the database.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        last, lineage, horizon = last_version(), current_database_id(), _horizon()
        if asked.cursor is not None:
            if (asked.cursor.lineage, asked.cursor.horizon) != (lineage, horizon):
                raise FeedCursorExpired
            return _snapshot(asked, asked.cursor)
        is_ours = asked.lineage in (None, lineage)
        if is_ours and asked.after != 0 and horizon <= asked.after <= last:
            return _increment(asked, last, lineage)
        return _snapshot(asked, FeedCursor(lineage, horizon, last))


def _increment(query: FeedQuery, last: int, lineage: str) -> feed.FeedPage:
    newer = PublishedChange.objects.filter(version__gt=query.after).order_by("version")
    if query.kinds is not None:
        newer = newer.filter(kind__in=query.kinds)
    changes = tuple(
        _change(row.version, row.kind, row.record_id, row.record) for row in newer[:CHANGES_MAX]
    )
    reached = changes[-1].version if len(changes) == CHANGES_MAX else last
    return feed.FeedPage(reached, False, changes, lineage)


def _snapshot(query: FeedQuery, start: FeedCursor) -> feed.FeedPage:
    """Return a page of the state at the version at which the snapshot began."""
    parameters: dict[str, str | int | list[str] | None] = {
        "version": start.version,
        "kind": start.kind,
        "record_id": start.record_id,
        "kinds": None if query.kinds is None else list(query.kinds),
        "limit": query.limit,
    }
    with connection.cursor() as cursor:
        # Read in index order, a page costs only its own rows; the planner wrongly estimates that
        # sorting all rows for each page is cheaper.
        cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute(STATE, parameters)
        changes = tuple(_change(*row) for row in cursor.fetchall())
    rest = ""
    if query.limit is not None and len(changes) == query.limit:
        rest = replace(start, kind=changes[-1].kind, record_id=changes[-1].id).text
    return feed.FeedPage(start.version, True, changes, start.lineage, rest)


def _horizon() -> int:
    return CompactionHorizon.objects.filter(id=1).values_list("version", flat=True).first() or 0


def _change(version: int, kind: str, record_id: str, record: str | None) -> feed.FeedChange:
    raw = feed.DELETED if record is None else msgspec.Raw(record.encode())
    return feed.FeedChange(version, kind, record_id, raw)


def last_record(kind: str, record_id: str) -> str | None:
    """Return the newest JSON of a record; None if there is none."""
    newest = (
        PublishedChange.objects.filter(kind=kind, record_id=record_id).order_by("-version").first()
    )
    return newest.record if newest else None


def records_of(
    kinds: Collection[str], ids: Collection[str] | None = None
) -> dict[tuple[str, str], str]:
    """Return the newest JSON of the records of some kinds, by kind and id."""
    parameters = {"kinds": list(kinds), "ids": None if ids is None else list(ids)}
    with connection.cursor() as cursor:
        cursor.execute(RECORDS, parameters)
        return {(kind, record_id): record for kind, record_id, record in cursor.fetchall()}


def last_version() -> int:
    """Return the version of the newest change; 0 before the first."""
    with connection.cursor() as cursor:
        cursor.execute(LAST)
        return int(cursor.fetchone()[0])
