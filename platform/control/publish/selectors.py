"""Reading the feed: the changes after a version, or the state as a whole."""

from collections.abc import Collection

import msgspec
from django.db import connection, transaction

from control.publish.lineage import lineage_now
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

# The newest change of each record of some kinds, deletions left out; %(ids)s of NULL means all.
RECORDS = """
SELECT kind, record_id, record FROM (
    SELECT DISTINCT ON (kind, record_id) kind, record_id, record FROM publish_change
    WHERE kind = ANY(%(kinds)s) AND (%(ids)s::text[] IS NULL OR record_id = ANY(%(ids)s))
    ORDER BY kind, record_id, version DESC
) AS newest WHERE record IS NOT NULL
"""

LAST = "SELECT coalesce(max(version), 0) FROM publish_change"


def page_after(version: int, known_lineage: str | None = None) -> feed.Page:
    """Return what came after `version` of a lineage (None: of any): a snapshot for 0, for another
    lineage than the database's (it was restored from a backup since), for a version from before
    the horizon, and for one that this database never gave."""
    with transaction.atomic(), connection.cursor() as cursor:
        # All of the page is read from one state of the database.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        last, lineage = last_version(), lineage_now()
        is_ours = known_lineage in (None, lineage)
        if is_ours and version != 0 and _horizon() <= version <= last:
            return _increment(version, lineage)
        cursor.execute(STATE)
        return feed.Page(last, True, tuple(_change(*row) for row in cursor.fetchall()), lineage)


def _increment(version: int, lineage: str) -> feed.Page:
    rows = Change.objects.filter(version__gt=version).order_by("version")[:CHANGES_MAX]
    changes = tuple(_change(row.version, row.kind, row.record_id, row.record) for row in rows)
    return feed.Page(changes[-1].version if changes else version, False, changes, lineage)


def _horizon() -> int:
    return Horizon.objects.filter(id=1).values_list("version", flat=True).first() or 0


def _change(version: int, kind: str, record_id: str, record: str | None) -> feed.Change:
    raw = feed.DELETED if record is None else msgspec.Raw(record.encode())
    return feed.Change(version, kind, record_id, raw)


def last_record(kind: str, record_id: str) -> str | None:
    """Return the JSON of a record as the data plane knows it, None if it knows none."""
    newest = Change.objects.filter(kind=kind, record_id=record_id).order_by("-version").first()
    return newest.record if newest else None


def records_of(
    kinds: Collection[str], ids: Collection[str] | None = None
) -> dict[tuple[str, str], str]:
    """Return the JSON of the records of some kinds as the data plane knows them, by kind and id."""
    wanted = {"kinds": list(kinds), "ids": None if ids is None else list(ids)}
    with connection.cursor() as cursor:
        cursor.execute(RECORDS, wanted)
        return {(kind, record_id): record for kind, record_id, record in cursor.fetchall()}


def last_version() -> int:
    """Return the version of the newest change, 0 before the first."""
    with connection.cursor() as cursor:
        cursor.execute(LAST)
        return int(cursor.fetchone()[0])
