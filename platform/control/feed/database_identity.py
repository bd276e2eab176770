"""Which database this is: a database restored from a backup is another than the one before it.

Readers that hold on to what a database told them (versions of the feed, credit leases, what was
acknowledged) hold its lineage beside it, and begin anew when that changes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import connection

REMEMBERED_SECONDS = 5.0

# The seed tells apart databases made by `createdb`, the rest those made of one backup: a dump is
# loaded into another database or cluster, and a cluster restored or promoted is on a new timeline.
LINEAGE = """
SELECT left(encode(sha256(convert_to(concat_ws(' ',
    (SELECT seed FROM feed_database_identity ORDER BY id LIMIT 1), control.system_identifier,
    checkpoint.timeline_id, database.oid), 'UTF8')), 'hex'), 12)
FROM pg_control_system() AS control, pg_control_checkpoint() AS checkpoint,
    pg_database AS database
WHERE database.datname = current_database()
"""


@dataclass(slots=True)
class _Known:
    name: str = ""
    database: str = ""
    until: float = 0.0
    listeners: list[Callable[[], None]] = field(default_factory=list)


_known = _Known()


def database_id() -> str:
    """Return the lineage of the database, twelve hexadecimal digits, as of some seconds ago."""
    database = connection.settings_dict["NAME"]
    if _known.database != database or time.monotonic() >= _known.until:
        _take_in(current_database_id())
        _known.database, _known.until = database, time.monotonic() + REMEMBERED_SECONDS
    return _known.name


def current_database_id() -> str:
    """Return the lineage of the database, asked in this transaction: what is read in it is that
    lineage's."""
    with connection.cursor() as cursor:
        cursor.execute(LINEAGE)
        return str(cursor.fetchone()[0])


def on_change(listener: Callable[[], None]) -> None:
    """Call this whenever the database turns out to be another one than before."""
    _known.listeners.append(listener)


def _take_in(name: str) -> None:
    if _known.name not in ("", name):
        for listener in _known.listeners:
            listener()
    _known.name = name
