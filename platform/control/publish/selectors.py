"""Reading the feed: the changes after a version, or the state as a whole."""

import msgspec
from django.db import connection, transaction

from control.publish.models import Change, Horizon
from serving.contract import feed

CHANGES_MAX = 5_000
"""The most changes in one page that is no snapshot."""

# The newest change of each record, in the order of their versions.
STATE = """
SELECT version, kind, record_id, record FROM (
    SELECT DISTINCT ON (kind, record_id) version, kind, record_id, record
    FROM publish_change ORDER BY kind, record_id, version DESC
) AS newest WHERE record IS NOT NULL ORDER BY version
"""

LAST = "SELECT coalesce(max(version), 0) FROM publish_change"


def page_after(version: int) -> feed.Page:
    """Return what came after `version`: a snapshot for 0, for a version from before the horizon,
    and for one that this database never gave (it was restored from a backup)."""
    with transaction.atomic(), connection.cursor() as cursor:
        # All of the page is read from one state of the database.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        last = last_version()
        if version == 0 or version > last or version < _horizon():
            cursor.execute(STATE)
            return feed.Page(last, True, tuple(_change(*row) for row in cursor.fetchall()))
        return _increment(version)


def _increment(version: int) -> feed.Page:
    rows = Change.objects.filter(version__gt=version).order_by("version")[:CHANGES_MAX]
    changes = tuple(_change(row.version, row.kind, row.record_id, row.record) for row in rows)
    return feed.Page(changes[-1].version if changes else version, False, changes)


def _horizon() -> int:
    return Horizon.objects.filter(id=1).values_list("version", flat=True).first() or 0


def _change(version: int, kind: str, record_id: str, record: str | None) -> feed.Change:
    raw = feed.DELETED if record is None else msgspec.Raw(record.encode())
    return feed.Change(version, kind, record_id, raw)


def last_record(kind: str, record_id: str) -> str | None:
    """Return the JSON of a record as the data plane knows it, None if it knows none."""
    newest = Change.objects.filter(kind=kind, record_id=record_id).order_by("-version").first()
    return newest.record if newest else None


def last_version() -> int:
    """Return the version of the newest change, 0 before the first."""
    with connection.cursor() as cursor:
        cursor.execute(LAST)
        return int(cursor.fetchone()[0])
