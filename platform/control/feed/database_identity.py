"""The identity of the database: a database restored from a backup is a different one.

Readers that keep what a database sent them (feed versions, credit leases, acknowledgements) keep
its lineage with it, and start over when that changes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import connection

REMEMBERED_SECONDS = 5.0

# The seed distinguishes databases made by `createdb`, the other values those made from one backup:
# a dump is loaded into another database or cluster, and a restored or promoted cluster is on a new
# timeline.
# A promoted cluster writes on its new timeline at once; its next checkpoint may be minutes away.
TIMELINE = """
CASE WHEN pg_is_in_recovery() THEN checkpoint.timeline_id
ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END
"""
LINEAGES = """
SELECT left(encode(sha256(convert_to(concat_ws(' ',
    (SELECT seed FROM feed_database_identity ORDER BY id LIMIT 1), control.system_identifier,
    timeline.id, database.oid), 'UTF8')), 'hex'), 12)
FROM pg_control_system() AS control, pg_control_checkpoint() AS checkpoint,
    pg_database AS database, generate_series({first}, {last}) AS timeline (id)
WHERE database.datname = current_database()
"""
LINEAGE = LINEAGES.format(first=TIMELINE, last=TIMELINE)
EARLIER_LINEAGES = LINEAGES.format(first="1", last=f"{TIMELINE} - 1")


@dataclass(slots=True)
class _CachedIdentity:
    name: str = ""
    database: str = ""
    until: float = 0.0
    listeners: list[Callable[[], None]] = field(default_factory=list)


_known = _CachedIdentity()


def database_id() -> str:
    """Return the lineage of the database, twelve hexadecimal digits, as of at most
    `REMEMBERED_SECONDS` ago."""
    database = connection.settings_dict["NAME"]
    if _known.database != database or time.monotonic() >= _known.until:
        name = current_database_id()
        if _known.name not in ("", name):
            for listener in _known.listeners:
                listener()
        _known.name, _known.database = name, database
        _known.until = time.monotonic() + REMEMBERED_SECONDS
    return _known.name


def current_database_id() -> str:
    """Return the lineage of the database as of this transaction, so that it applies to everything
    read in it."""
    with connection.cursor() as cursor:
        cursor.execute(LINEAGE)
        return str(cursor.fetchone()[0])


def earlier_database_ids() -> set[str]:
    """Return the lineages that this database had before its cluster was promoted or restored to a
    point in time: each is of the same files, so its transaction ids hold here."""
    with connection.cursor() as cursor:
        cursor.execute(EARLIER_LINEAGES)
        return {str(row[0]) for row in cursor.fetchall()}


def on_change(listener: Callable[[], None]) -> None:
    """Call the listener whenever the database turns out to be a different one than before."""
    _known.listeners.append(listener)
